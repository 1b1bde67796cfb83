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

// Options say how callers authenticate.
type Options struct {
	// Tokens is the path of the token file. Empty means that there are no static tokens.
	Tokens string
	// JWKS is the path of the file with the public keys of the issuer of JWTs. Empty means that
	// JWTs are not accepted.
	JWKS string
	// Issuer is the value that the claim "iss" of a JWT must have, and Audience a value that its
	// claim "aud" must contain. Both are required with JWKS.
	Issuer, Audience string
	// Logger gets a line when files change. Default: nothing is logged.
	Logger *slog.Logger
}

// Authenticator authenticates callers. Its methods may be called concurrently.
type Authenticator struct {
	tokens *reloader[tokenFile] // may be nil
	keys   *reloader[keySet]    // may be nil
	issuer issuer
}

// Open loads the files. They are loaded again when they change.
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
		a.tokens, err = newReloader("tokens", o.Logger, func() (*tokenFile, error) { return loadTokens(o.Tokens) }, o.Tokens)
		if err != nil {
			return nil, fmt.Errorf("the token file: %w", err)
		}
	}
	if o.JWKS != "" {
		a.keys, err = newReloader("keys", o.Logger, func() (*keySet, error) { return loadKeys(o.JWKS) }, o.JWKS)
		if err != nil {
			return nil, fmt.Errorf("the JWKS file: %w", err)
		}
	}
	return a, nil
}

// Stale reports for each kind of file, by name, whether it has changed and could not be loaded, so
// that its previous content is still in use.
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

// Authorize authenticates a caller by its Authorization header (empty if it has none) and its
// verified client certificate (nil if it has none). If there is a token, only the token counts: a
// certificate does not make up for an invalid token. The error is or wraps [ErrMissing],
// [ErrInvalid] or [ErrExpired], and its text may be sent to the client.
func (a *Authenticator) Authorize(now time.Time, authorization string, cert *x509.Certificate) (Caller, error) {
	if authorization == "" {
		return a.authorizeCertificate(now, cert)
	}
	text, err := bearerToken(authorization)
	if err != nil {
		return Caller{}, err
	}
	// Tokens are looked up by their hash, so the time of a lookup reveals nothing about a token.
	hash := tokenHash(sha256.Sum256([]byte(text)))

	// A static token.
	if a.tokens != nil {
		if known, ok := a.tokens.current(now).byHash[hash]; ok {
			return known.authorize(now, cert)
		}
	}
	if a.keys == nil {
		return Caller{}, ErrInvalid
	}

	// A JWT. The verified tokens belong to the same version of the keys, so that a removed key also
	// invalidates the tokens that it has verified.
	jwtKeys := a.keys.current(now)
	if t, ok := jwtKeys.verified.find(&hash); ok {
		return t.authorize(now, cert)
	}
	caller, expires, err := a.issuer.verify(jwtKeys, text, now)
	if err != nil {
		return Caller{}, err
	}
	jwtKeys.verified.add(&hash, credential{caller: caller, expires: expires}, now)
	return caller, nil
}

// authorize returns the caller of a known token, if the token has not expired, and the certificate
// is the one to which the token is bound.
func (c *credential) authorize(now time.Time, cert *x509.Certificate) (Caller, error) {
	if c.isExpired(now) {
		return Caller{}, ErrExpired
	}
	if c.cert != "" && !hasValidName(cert, now, c.cert) {
		return Caller{}, errCertificate
	}
	return c.caller, nil
}

// authorizeCertificate returns the caller of a call without a token.
func (a *Authenticator) authorizeCertificate(now time.Time, cert *x509.Certificate) (Caller, error) {
	if a.tokens == nil || cert == nil {
		return Caller{}, ErrMissing
	}
	byCert := a.tokens.current(now).byCert
	for _, name := range certificateNames(cert) {
		if t, ok := byCert[name]; ok {
			return t.authorize(now, cert)
		}
	}
	return Caller{}, ErrMissing
}

// maxTokenBytes is the length of the longest token. The longest JWTs of large issuers have about 4
// KiB.
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
