package access

import (
	"crypto/sha256"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"
)

// Options say how callers authenticate. At least one of Tokens and JWKS must be set.
type Options struct {
	// Tokens is the path of the token file. Empty means that there are no static tokens.
	Tokens string
	// JWKS is the path of the file with the public keys of the issuer of JWTs. Empty means that
	// JWTs are not accepted.
	JWKS string
	// Issuer is the value that the claim "iss" of a JWT must have, and Audience a value that its
	// claim "aud" must contain. Both are required with JWKS.
	Issuer, Audience string
	// Logger gets a line when files change. If it is nil, nothing is logged.
	Logger *slog.Logger
}

// Authenticator authenticates callers. Its methods may be called concurrently.
type Authenticator struct {
	tokens *reloader[tokenFile] // nil if there are no static tokens
	keys   *reloader[keySet]    // nil if JWTs are not accepted
	issuer issuer
}

// Open loads the files, and returns an Authenticator that loads them again when they change.
func Open(o Options) (*Authenticator, error) {
	if o.Tokens == "" && o.JWKS == "" {
		return nil, errors.New("access: neither a token file nor keys for JWTs")
	}
	if o.JWKS != "" && (o.Issuer == "" || o.Audience == "") {
		return nil, errors.New("access: keys for JWTs need an issuer and an audience")
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}

	a := &Authenticator{issuer: issuer{o.Issuer, o.Audience}}
	var err error
	if o.Tokens != "" {
		load := func() (*tokenFile, error) { return loadTokens(o.Tokens) }
		a.tokens, err = newReloader("tokens", o.Logger, load, o.Tokens)
		if err != nil {
			return nil, fmt.Errorf("the token file: %w", err)
		}
	}
	if o.JWKS != "" {
		load := func() (*keySet, error) { return loadKeys(o.JWKS) }
		a.keys, err = newReloader("keys", o.Logger, load, o.JWKS)
		if err != nil {
			return nil, fmt.Errorf("the JWKS file: %w", err)
		}
	}
	return a, nil
}

// Stale reports for each file, by the name of its content, whether it has changed and could not be
// loaded. The previous content is then still in use.
func (a *Authenticator) Stale(now time.Time) map[string]bool {
	stale := map[string]bool{}
	if a.tokens != nil {
		a.tokens.current(now)
		stale[a.tokens.name] = a.tokens.stale.Load()
	}
	if a.keys != nil {
		a.keys.current(now)
		stale[a.keys.name] = a.keys.stale.Load()
	}
	return stale
}

// Authorize authenticates a caller by its Authorization header (empty if the call has none) and its
// verified client certificate (nil if the connection has none). If there is a token, the token
// identifies the caller: a certificate does not make up for an invalid token. The error is or wraps
// [ErrMissing], [ErrInvalid] or [ErrExpired], and its text may be sent to the client.
func (a *Authenticator) Authorize(now time.Time, authorization string, cert *x509.Certificate) (Caller, error) {
	if authorization == "" {
		return a.authorizeCertificate(now, cert)
	}
	text, err := bearerToken(authorization)
	if err != nil {
		return Caller{}, err
	}

	// Tokens are looked up by their hash, so the time that a lookup takes reveals nothing about a
	// token.
	hash := tokenHash(sha256.Sum256([]byte(text)))

	// Is it a static token?
	if a.tokens != nil {
		known, ok := a.tokens.current(now).byHash[hash]
		if ok {
			return known.authorize(now, cert)
		}
	}

	// Otherwise it must be a JWT. The verified tokens belong to the same version of the keys, so
	// that a removed key also invalidates the tokens that it has verified.
	if a.keys == nil {
		return Caller{}, ErrInvalid
	}
	jwtKeys := a.keys.current(now)
	known, ok := jwtKeys.verified.find(&hash)
	if ok {
		return known.authorize(now, cert)
	}
	caller, expires, err := a.issuer.verify(jwtKeys, text, now)
	if err != nil {
		return Caller{}, err
	}
	jwtKeys.verified.add(&hash, credential{caller: caller, expires: expires}, now)
	return caller, nil
}

// authorize returns the caller of a known credential. It fails if the credential has expired, or if
// it is bound to another certificate than cert.
func (c *credential) authorize(now time.Time, cert *x509.Certificate) (Caller, error) {
	if c.isExpired(now) {
		return Caller{}, ErrExpired
	}
	if c.cert != "" && !hasValidName(cert, now, c.cert) {
		return Caller{}, errCertificate
	}
	return c.caller, nil
}

// authorizeCertificate returns the caller of a call without a token, by a line of the token file
// that names the certificate.
func (a *Authenticator) authorizeCertificate(now time.Time, cert *x509.Certificate) (Caller, error) {
	if a.tokens == nil || cert == nil {
		return Caller{}, ErrMissing
	}
	byCert := a.tokens.current(now).byCert
	for _, name := range certificateNames(cert) {
		known, ok := byCert[name]
		if ok {
			return known.authorize(now, cert)
		}
	}
	return Caller{}, ErrMissing
}

// maxTokenBytes limits the length of a token. The longest JWTs of large issuers have about 4 KiB.
const maxTokenBytes = 8 << 10

// bearerToken returns the token in an Authorization header (RFC 6750).
func bearerToken(authorization string) (string, error) {
	const scheme = "bearer "
	if len(authorization) <= len(scheme) || !strings.EqualFold(authorization[:len(scheme)], scheme) {
		return "", errScheme
	}
	text := authorization[len(scheme):]
	if len(text) > maxTokenBytes {
		return "", errTooLong
	}
	return text, nil
}
