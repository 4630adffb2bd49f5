// A line to a gateway that cuts answers at any byte, now and then, and none of one request more than three times in a row.
import net from "node:net";

export async function lossyLine(origin, chance, most) {
  const { hostname, port } = new URL(origin);
  let seed = 7;
  const random = () => ((seed = (seed * 1_103_515_245 + 12_345) % 2 ** 31) / 2 ** 31);
  const line = { cuts: 0, url: "", close: () => server.close() };
  const inARow = new Map();
  const server = net.createServer((caller) => {
    let request = Buffer.alloc(0);
    caller.on("error", () => undefined);
    const read = (piece) => {
      request = Buffer.concat([request, piece]);
      const end = request.indexOf("\r\n\r\n");
      if (end < 0) return;
      const head = request.subarray(0, end).toString("latin1");
      const length = Number(/^content-length: *(\d+)/im.exec(head)?.[1] ?? 0);
      if (request.length < end + 4 + length) return;
      caller.off("data", read);
      const name = `${head.split("\r\n")[0]} ${/^idempotency-key: *(.*)/im.exec(head)?.[1]}`;
      const cuts = (inARow.get(name) ?? 0) < 3 && random() < chance;
      inARow.set(name, cuts ? (inARow.get(name) ?? 0) + 1 : 0);
      let left = cuts ? Math.floor(random() * most) : Infinity;
      const gateway = net.connect(Number(port), hostname, () => {
        const closing = head.split("\r\n").filter((one) => !/^connection:/i.test(one)).concat("Connection: close").join("\r\n");
        gateway.write(Buffer.concat([Buffer.from(`${closing}\r\n\r\n`, "latin1"), request.subarray(end + 4)]));
      });
      gateway.on("data", (bytes) => {
        caller.write(bytes.subarray(0, left));
        left -= bytes.length;
        if (left <= 0) {
          line.cuts += 1;
          caller.resetAndDestroy();
          gateway.destroy();
        }
      });
      gateway.on("end", () => caller.end());
      gateway.on("error", () => caller.destroy());
      caller.on("close", () => gateway.destroy());
    };
    caller.on("data", read);
  });
  await new Promise((ready) => server.listen(0, "127.0.0.1", ready));
  line.url = `http://127.0.0.1:${server.address().port}`;
  return line;
}
