// Verify one bundle over one artifact with sigstore's JavaScript implementation.
//
//   node verify.js TRUSTED_ROOT BUNDLE ARTIFACT IDENTITY ISSUER [PUBLIC_KEY]
//
// Prints "accepted", or "refused: <why>" with exit status 1. With a public key, identity and issuer are not asked for.
'use strict';

const crypto = require('crypto');
const fs = require('fs');
const { bundleFromJSON } = require('@sigstore/bundle');
const { TrustedRoot } = require('@sigstore/protobuf-specs');
const { Verifier, toSignedEntity, toTrustMaterial } = require('@sigstore/verify');

const [rootPath, bundlePath, artifactPath, identity, issuer, keyPath] = process.argv.slice(2);
const read = (path) => JSON.parse(fs.readFileSync(path));

try {
  const findKey = keyPath
    ? () => ({ publicKey: crypto.createPublicKey(fs.readFileSync(keyPath)), validFor: () => true })
    : undefined;
  const trust = toTrustMaterial(TrustedRoot.fromJSON(read(rootPath)), findKey);
  const ctlogThreshold = keyPath ? 0 : 1;
  const verifier = new Verifier(trust, { tlogThreshold: 1, ctlogThreshold, timestampThreshold: 1 });
  const bundle = bundleFromJSON(read(bundlePath));
  const artifact = fs.readFileSync(artifactPath);
  const policy = keyPath ? undefined : { subjectAlternativeName: identity, extensions: { issuer } };
  if (bundle.content.$case === 'messageSignature') {
    verifier.verify(toSignedEntity(bundle, artifact), policy);
  } else {
    verifier.verify(toSignedEntity(bundle), policy);
    // The library says that the statement was signed; which artifact it is about, its caller compares.
    const digest = crypto.createHash('sha256').update(artifact).digest('hex');
    const statement = JSON.parse(bundle.content.dsseEnvelope.payload);
    if (!statement.subject.some((subject) => subject.digest.sha256 === digest)) {
      throw new Error('no subject has the digest of the artifact');
    }
  }
  console.log('accepted');
} catch (error) {
  console.log(`refused: ${error.code ?? error.name}: ${error.message}`);
  process.exit(1);
}
