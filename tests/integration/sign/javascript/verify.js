// Verify one bundle over one artifact with sigstore's JavaScript implementation.
//
//   node verify.js TRUSTED_ROOT BUNDLE ARTIFACT IDENTITY ISSUER
//
// Prints "accepted", or "refused: <why>" with exit status 1.
'use strict';

const crypto = require('crypto');
const fs = require('fs');
const { bundleFromJSON } = require('@sigstore/bundle');
const { TrustedRoot } = require('@sigstore/protobuf-specs');
const { Verifier, toSignedEntity, toTrustMaterial } = require('@sigstore/verify');

const [rootPath, bundlePath, artifactPath, identity, issuer] = process.argv.slice(2);
const read = (path) => JSON.parse(fs.readFileSync(path));

try {
  const trust = toTrustMaterial(TrustedRoot.fromJSON(read(rootPath)));
  const verifier = new Verifier(trust, { tlogThreshold: 1, ctlogThreshold: 1, timestampThreshold: 1 });
  const bundle = bundleFromJSON(read(bundlePath));
  verifier.verify(toSignedEntity(bundle), {
    subjectAlternativeName: identity,
    extensions: { issuer },
  });
  // The library says that the statement was signed; which artifact it is about, its caller compares.
  const digest = crypto.createHash('sha256').update(fs.readFileSync(artifactPath)).digest('hex');
  const statement = JSON.parse(bundle.content.dsseEnvelope.payload);
  if (!statement.subject.some((subject) => subject.digest.sha256 === digest)) {
    throw new Error('no subject has the digest of the artifact');
  }
  console.log('accepted');
} catch (error) {
  console.log(`refused: ${error.code ?? error.name}: ${error.message}`);
  process.exit(1);
}
