// Package access authenticates callers. It loads from files what authentication needs:
// certificates, static tokens, and the public keys of an issuer of JWTs. It knows roles and users,
// but no methods: package gateway says which method needs which role.
//
//	 files                         reloader.go: checked once a second when
//	┌──────────────────┐           calls arrive; if a file does not load,
//	│ cert, key, CA    │──▶ Certificates ──▶ handshake ─┐  the previous value stays
//	│ token file       │──▶ tokenFile ┐                 │
//	│ JWKS file        │──▶ keySet    ┤ Authenticator   ▼
//	└──────────────────┘              │       verified client certificate
//	                                  ▼                 │
//	Authorization: Bearer … ──▶ Authorize ◀─────────────┘
//	                                  │
//	                                  ├─ static: SHA-256 ─▶ the line of the token file with this hash
//	                                  ├─ JWT: SHA-256 ─▶ verified before? ─▶ else signature, issuer, audience, times
//	                                  └─ no token: the line that names the certificate
//	                                  ▼
//	                      Caller{Name, Roles, User}, or an error
//
// A service without an Authenticator cannot distinguish callers. It then answers only requests for
// those [Hosts] that no web page can have as its own host.
//
// # Invariants
//
// An unauthenticated caller has no role: the zero [Caller] may do nothing. A call without
// credentials is refused with [ErrMissing].
//
// A token exists only in the header in which it arrived. The token file and the memory of this
// package have only hashes of tokens, and no error and no log line quotes a token or a part of it.
//
// A decision about a token is valid no longer than the token itself, and no longer than the version
// of the file on which the decision was based. So the cache of verified tokens is dropped together
// with the keys that verified them.
//
// A token has no influence on how it is verified. Its algorithm must be one of three, all with
// public keys, and the algorithm of the key that the file has for the token's key id. Keys that a
// token names, embeds or links to are ignored.
package access
