// Package access identifies callers, and keeps what that is decided by: certificates, static tokens, the keys of an issuer
// of JWTs. It knows roles and users and no method: which method needs what stands in the gateway.
//
//	 files                         kept.go: looked at once a second, when
//	┌──────────────────┐           a call comes; one that does not load
//	│ cert, key, CA    │──▶ Certificates ──▶ handshake ─┐  leaves the previous one in place
//	│ token file       │──▶ tokens   ┐                  │
//	│ JWKS file        │──▶ keys     ┤ Gate             ▼
//	└──────────────────┘             │        verified client certificate
//	                                 ▼                  │
//	Authorization: Bearer … ──▶ Authorize ◀─────────────┘
//	                                 │
//	                                 ├─ static: SHA-256 ─▶ the line of the file that has it
//	                                 ├─ JWT: SHA-256 ─▶ verified before? ─▶ else signature, issuer, audience, times
//	                                 └─ no token: the line that names the certificate
//	                                 ▼
//	                     Caller{Name, Roles, User}, or why not
//
// A service without a Gate cannot tell callers apart. It answers only to the [Hosts] that no page of the web can have as its own.
//
// # What must stay true
//
// An unauthenticated caller has no role: the zero [Caller] may do nothing. A call without credentials is refused with
// [ErrMissing].
//
// A secret is nowhere but in the header that it came in: the token file and the memory of this package hold hashes, and no
// error and no line of a log quotes a token or a part of one.
//
// What is decided about a token holds no longer than the token, and no longer than the file by which it was decided: what was
// verified is forgotten with the keys that it was verified by.
//
// A token says nothing about how it is to be verified. The algorithm must be in a list of three, all with public keys, and be
// that of the key which the file has under the token's key id; a key that is named, embedded or linked in a token is not looked at.
package access
