// An issuer of accounts: the certified OpenID provider oidc-provider, with its own pages for development.
//
// issuer.mjs PLACE SECONDS: where it is installed, and how long its access tokens last. SIGUSR2 has it stop listening, and
// listen again. Says on standard output what it does: "listening on URL", "away", "tokens by GRANT".
import { createRequire } from 'node:module';
import { generateKeyPairSync } from 'node:crypto';
import { createServer } from 'node:http';
import { pathToFileURL } from 'node:url';

const [place, seconds] = process.argv.slice(2);
const { default: Provider } = await import(pathToFileURL(createRequire(`${place}/`).resolve('oidc-provider')).href);

const lasts = Number(seconds);
const deviceGrant = 'urn:ietf:params:oauth:grant-type:device_code';
const key = generateKeyPairSync('rsa', { modulusLength: 2048 }).privateKey.export({ format: 'jwk' });

let port = 0;
let handle = () => {};
const listener = createServer((request, response) => handle(request, response));

function configuration() {
    return {
        clients: [{
            client_id: 'deskgate-desktop',
            client_name: 'Deskgate',
            token_endpoint_auth_method: 'none',
            grant_types: [deviceGrant, 'refresh_token'],
            redirect_uris: [],
            response_types: [],
        }],
        jwks: { keys: [{ ...key, use: 'sig', alg: 'RS256', kid: 'first' }] },
        cookies: { keys: ['only for tests'] },
        scopes: ['openid', 'offline_access'],
        findAccount: (_, id) => ({ accountId: id, claims: () => ({ sub: id }) }),
        features: {
            deviceFlow: { enabled: true },
            devInteractions: { enabled: true },
            revocation: { enabled: true, allowedPolicy: () => true },
            resourceIndicators: {
                enabled: true,
                getResourceServerInfo: (_, indicator) => ({
                    scope: '',
                    audience: indicator,
                    accessTokenTTL: lasts,
                    accessTokenFormat: 'jwt',
                    jwt: { sign: { alg: 'RS256' } },
                }),
            },
        },
        issueRefreshToken: () => true,
        rotateRefreshToken: true,
        ttl: { RefreshToken: 3600, DeviceCode: 600, Grant: 3600, Session: 3600, Interaction: 600 },
    };
}

function listen() {
    return new Promise((done) => listener.listen(port, '127.0.0.1', done));
}

// The address is a part of everything it says, and is known only once it listens.
await listen();
port = listener.address().port;
const url = `http://127.0.0.1:${port}`;
const provider = new Provider(url, configuration());
provider.on('grant.success', (ctx) => console.log(`tokens by ${ctx.oidc.params.grant_type}`));
provider.on('grant.error', (ctx, error) => console.log(`no tokens: ${error.error}`));
provider.on('grant.revoked', () => console.log('a grant was revoked'));
provider.on('server_error', (_, error) => console.error(error));
handle = provider.callback();
console.log(`listening on ${url}`);

// While nothing listens, nothing else keeps this process alive.
setInterval(() => {}, 60_000);
process.on('SIGUSR2', async () => {
    if (listener.listening) {
        listener.close();
        listener.closeAllConnections();
        console.log('away');
    } else {
        await listen();
        console.log('back');
    }
});
