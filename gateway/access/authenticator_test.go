package access

import (
	"crypto/ed25519"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"

	"github.com/skein-feed/skein/gateway/access/accesstest"
)

// mustOpen opens an authenticator. Its JWTs must be of the issuer and for the audience of
// accesstest.
func mustOpen(t testing.TB, o Options) *Authenticator {
	t.Helper()
	if o.JWKS != "" {
		o.Issuer = accesstest.Issuer
		o.Audience = accesstest.Audience
	}
	a, err := Open(o)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// mustNewToken returns a new token of a caller and its line for the file of tokens.
func mustNewToken(t testing.TB, caller Caller, expires time.Time) (secret, line string) {
	t.Helper()
	secret, line, err := NewToken(caller, expires)
	if err != nil {
		t.Fatal(err)
	}
	return secret, line
}

// expectCaller fails the test unless a call with an Authorization header has the given caller or
// error.
func expectCaller(t *testing.T, a *Authenticator, header string, want Caller, wantErr error) {
	t.Helper()
	expectCallerAt(t, a, time.Now(), header, want, wantErr)
}

// expectCallerAt is expectCaller for a call at a given time.
func expectCallerAt(t *testing.T, a *Authenticator, now time.Time, header string, want Caller, wantErr error) {
	t.Helper()
	got, err := a.Authorize(now, header, nil)
	if got != want || !errors.Is(err, wantErr) {
		t.Errorf("Authorize: got %+v and the error %v, want %+v and %v", got, err, want, wantErr)
	}
}

// expectErrorAt fails the test unless a call with a token at a given time has the error want, or
// none if want is nil.
func expectErrorAt(t *testing.T, a *Authenticator, now time.Time, token string, want error) {
	t.Helper()
	_, err := a.Authorize(now, "Bearer "+token, nil)
	if !errors.Is(err, want) {
		t.Errorf("Authorize: got the error %v, want %v", err, want)
	}
}

func TestStaticTokensIdentifyTheirCallers(t *testing.T) {
	web := Caller{Name: "web", Roles: Read | Publish}
	ann := Caller{Name: "ann", Roles: Read, User: "ann"}
	webToken, webLine := mustNewToken(t, web, time.Time{})
	annToken, annLine := mustNewToken(t, ann, time.Now().Add(time.Hour))
	oldToken, oldLine := mustNewToken(t, web, time.Now().Add(-time.Hour))
	webHash := webLine[strings.LastIndex(webLine, ":")+1:]
	file := filepath.Join(t.TempDir(), "tokens")
	mustWriteFile(t, file, strings.Join([]string{webLine, annLine, oldLine}, "\n"))
	a := mustOpen(t, Options{Tokens: file})

	for name, c := range map[string]struct {
		header  string
		want    Caller
		wantErr error
	}{
		"a service":                   {"Bearer " + webToken, web, nil},
		"the scheme in small letters": {"bearer " + webToken, web, nil},
		"a user":                      {"Bearer " + annToken, ann, nil},
		"expired":                     {"Bearer " + oldToken, Caller{}, ErrExpired},
		"no header":                   {"", Caller{}, ErrMissing},
		"the last letter is wrong":    {"Bearer " + webToken[:len(webToken)-1] + "!", Caller{}, ErrInvalid},
		"shorter":                     {"Bearer " + webToken[:20], Caller{}, ErrInvalid},
		"longer":                      {"Bearer " + webToken + "x", Caller{}, ErrInvalid},
		"the scheme alone":            {"Bearer ", Caller{}, ErrInvalid},
		"no scheme":                   {webToken, Caller{}, ErrInvalid},
		"another scheme":              {"Basic " + webToken, Caller{}, ErrInvalid},
		"two tokens":                  {"Bearer " + webToken + ", Bearer " + webToken, Caller{}, ErrInvalid},
		"two spaces":                  {"Bearer  " + webToken, Caller{}, ErrInvalid},
		"garbage":                     {"Bearer \x00\xff", Caller{}, ErrInvalid},
		"the hash of a token":         {"Bearer " + webHash, Caller{}, ErrInvalid},
		"too long":                    {"Bearer " + strings.Repeat("a", maxTokenBytes+1), Caller{}, ErrInvalid},
		"a JWT where there are none":  {"Bearer a.b.c", Caller{}, ErrInvalid},
	} {
		t.Run(name, func(t *testing.T) { expectCaller(t, a, c.header, c.want, c.wantErr) })
	}

	// A token that is removed from the file is no longer valid, and neither is any token when the
	// file is empty.
	mustWriteFile(t, file, annLine)
	expectErrorAt(t, a, afterChecks(1), webToken, ErrInvalid)
	mustWriteFile(t, file, "")
	expectErrorAt(t, a, afterChecks(2), annToken, ErrInvalid)
}

func TestJWTIsAcceptedOnlyWithValidClaims(t *testing.T) {
	_, edwardsKey, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	// All calls are made at this time, however long the keys take.
	now := time.Now()
	tester := Caller{Name: "tester", Roles: Read}

	// claims replace those of a good token; nil removes one.
	cases := []struct {
		name    string
		claims  map[string]any
		want    Caller
		wantErr error
	}{
		{"good", nil, tester, nil},
		{"bound to a user", map[string]any{"skein_user": "ann"}, Caller{Name: "tester", Roles: Read, User: "ann"}, nil},
		{"scopes", map[string]any{"skein_roles": "openid publish offline"}, Caller{Name: "tester", Roles: Publish | Offline}, nil},
		{"no roles", map[string]any{"skein_roles": nil}, Caller{Name: "tester"}, nil},
		{"roles of other services", map[string]any{"skein_roles": []string{"Read", "root"}}, Caller{Name: "tester"}, nil},
		{"no subject", map[string]any{"sub": nil}, Caller{Name: "jwt", Roles: Read}, nil},
		{"a subject that would forge a line of the log", map[string]any{"sub": "a\nlevel=ERROR"}, Caller{Name: "jwt", Roles: Read}, nil},
		{"several audiences", map[string]any{"aud": []string{"other", "skein"}}, tester, nil},
		{"just expired", map[string]any{"exp": now.Add(-10 * time.Second).Unix()}, tester, nil},
		{"expired", map[string]any{"exp": now.Add(-time.Minute).Unix()}, Caller{}, ErrExpired},
		{"no expiry", map[string]any{"exp": nil}, Caller{}, errNoExpiry},
		{"not yet valid", map[string]any{"nbf": now.Add(time.Minute).Unix()}, Caller{}, errNotYet},
		{"issued in the future", map[string]any{"iat": now.Add(time.Minute).Unix()}, Caller{}, errNotYet},
		{"another audience", map[string]any{"aud": "other"}, Caller{}, errAudience},
		{"no audience", map[string]any{"aud": nil}, Caller{}, errAudience},
		{"another issuer", map[string]any{"iss": accesstest.Issuer + "/"}, Caller{}, errIssuer},
		{"no issuer", map[string]any{"iss": nil}, Caller{}, errIssuer},
		{"an empty user", map[string]any{"skein_user": ""}, Caller{}, errClaims},
		{"an invalid id of a user", map[string]any{"skein_user": "a b"}, Caller{}, errClaims},
		{"null for a user", map[string]any{"skein_user": json.RawMessage("null")}, Caller{}, errClaims},
		{"several users", map[string]any{"skein_user": []string{"ann"}}, Caller{}, errClaims},
		{"roles of another type", map[string]any{"skein_roles": 15}, Caller{}, errClaims},
		{"expiry of another type", map[string]any{"exp": "never"}, Caller{}, errClaims},
	}

	for algorithm, issuer := range map[string]*accesstest.JWTs{
		"ES256": accesstest.NewJWTs(t, "one"),
		"RS256": accesstest.JWTsOf(t, "two", jose.RS256, newRSAKey(t, 2048)),
		"EdDSA": accesstest.JWTsOf(t, "three", jose.EdDSA, edwardsKey),
	} {
		t.Run(algorithm, func(t *testing.T) {
			a := mustOpen(t, Options{JWKS: issuer.File})
			for _, c := range cases {
				t.Run(c.name, func(t *testing.T) {
					token := issuer.Token(c.claims)
					expectCallerAt(t, a, now, "Bearer "+token, c.want, c.wantErr)
					// The second time, a good token comes from the cache.
					expectCallerAt(t, a, now, "Bearer "+token, c.want, c.wantErr)
				})
			}
		})
	}
}

// forgeJWT returns a JWT with any header, payload and signature.
func forgeJWT(header, payload string, signature func(signed []byte) []byte) string {
	encode := base64.RawURLEncoding.EncodeToString
	signed := encode([]byte(header)) + "." + encode([]byte(payload))
	return signed + "." + encode(signature([]byte(signed)))
}

// mustDecodeBase64 decodes a part of a JWT.
func mustDecodeBase64(t *testing.T, text string) []byte {
	t.Helper()
	data, err := base64.RawURLEncoding.DecodeString(text)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// mustMarshalKey returns a key as JSON.
func mustMarshalKey(t *testing.T, key jose.JSONWebKey) []byte {
	t.Helper()
	data, err := key.MarshalJSON()
	if err != nil {
		t.Fatal(err)
	}
	return data
}

func TestForgedJWTsAreRefused(t *testing.T) {
	issuer := accesstest.NewJWTs(t, "one")
	forger := accesstest.NewJWTs(t, "one")
	a := mustOpen(t, Options{JWKS: issuer.File})
	good := issuer.Token(nil)
	expectCaller(t, a, "Bearer "+good, Caller{Name: "tester", Roles: Read}, nil)

	parts := strings.Split(good, ".")
	payload := string(mustDecodeBase64(t, parts[1]))
	payloadWithAdmin := base64.RawURLEncoding.EncodeToString([]byte(strings.Replace(payload, "read", "admin", 1)))
	publicJSON := mustMarshalKey(t, issuer.Public())
	publicDER, err := x509.MarshalPKIXPublicKey(issuer.Public().Key)
	if err != nil {
		t.Fatal(err)
	}
	forgerJSON := string(mustMarshalKey(t, forger.Public()))
	forgerSignature := mustDecodeBase64(t, strings.Split(forger.Token(nil), ".")[2])

	// These return functions that sign.
	signHMAC := func(key []byte) func([]byte) []byte {
		return func(signed []byte) []byte {
			mac := hmac.New(sha256.New, key)
			mac.Write(signed)
			return mac.Sum(nil)
		}
	}
	useSignature := func(signature []byte) func([]byte) []byte {
		return func([]byte) []byte { return signature }
	}
	unsigned := useSignature(nil)
	zeros := useSignature(make([]byte, 64))

	for name, token := range map[string]string{
		"another key with the same id":   forger.Token(nil),
		"another key with another id":    accesstest.NewJWTs(t, "two").Token(nil),
		"more roles":                     parts[0] + "." + payloadWithAdmin + "." + parts[2],
		"no signature":                   parts[0] + "." + parts[1] + ".",
		"a part of a signature":          good[:len(good)-40],
		"alg none":                       forgeJWT(`{"alg":"none","kid":"one"}`, payload, unsigned),
		"alg NONE":                       forgeJWT(`{"alg":"NONE","kid":"one"}`, payload, unsigned),
		"HS256 with the public key":      forgeJWT(`{"alg":"HS256","kid":"one"}`, payload, signHMAC(publicJSON)),
		"HS256 with the DER of the key":  forgeJWT(`{"alg":"HS256","kid":"one"}`, payload, signHMAC(publicDER)),
		"an embedded key":                forgeJWT(`{"alg":"ES256","kid":"one","jwk":`+forgerJSON+`}`, payload, useSignature(forgerSignature)),
		"the URL of a key":               forgeJWT(`{"alg":"ES256","jku":"https://example.com/jwks.json"}`, payload, unsigned),
		"another algorithm than the key": forgeJWT(`{"alg":"ES384","kid":"one"}`, payload, useSignature(make([]byte, 96))),
		"a signature of zeros":           forgeJWT(`{"alg":"ES256","kid":"one"}`, payload, zeros),
		"a payload that is not JSON":     forgeJWT(`{"alg":"ES256","kid":"one"}`, "payload", zeros),
		"dots":                           "..",
		"five parts":                     "a.b.c.d.e",
		"text":                           "a.b.c",
	} {
		t.Run(name, func(t *testing.T) {
			expectCaller(t, a, "Bearer "+token, Caller{}, ErrInvalid)

			// The text must not help a forger.
			_, err := a.Authorize(time.Now(), "Bearer "+token, nil)
			if err == nil || err.Error() != ErrInvalid.Error() {
				t.Errorf("text of the error: got %v, want no more than %q", err, ErrInvalid)
			}
		})
	}
}

// TestKeysRotateWithoutRefusedCalls rotates keys: the new key is added, then used, and then the old
// key is removed. From then on, tokens of the old key are refused, although they were verified
// before.
func TestKeysRotateWithoutRefusedCalls(t *testing.T) {
	before := accesstest.NewJWTs(t, "before")
	after := accesstest.NewJWTs(t, "after")
	file := before.File
	a := mustOpen(t, Options{JWKS: file})
	// expectNewToken uses a token that is not in the cache.
	expectNewToken := func(now time.Time, issuer *accesstest.JWTs, want error) {
		t.Helper()
		expectErrorAt(t, a, now, issuer.Token(nil), want)
	}
	verifiedToken := before.Token(nil)
	expectNewToken(time.Now(), after, ErrInvalid)

	accesstest.WriteKeys(t, file, before, after)
	expectNewToken(afterChecks(1), before, nil)
	expectNewToken(afterChecks(1), after, nil)
	expectErrorAt(t, a, afterChecks(1), verifiedToken, nil)

	accesstest.WriteKeys(t, file, after)
	expectErrorAt(t, a, afterChecks(2), verifiedToken, ErrInvalid)
	expectNewToken(afterChecks(2), after, nil)

	// If the file is invalid, the previous keys stay.
	mustWriteFile(t, file, "{")
	expectNewToken(afterChecks(3), after, nil)
}

// TestVerifiedTokenExpires checks that a JWT that was verified once is refused after it has
// expired.
func TestVerifiedTokenExpires(t *testing.T) {
	issuer := accesstest.NewJWTs(t, "one")
	a := mustOpen(t, Options{JWKS: issuer.File})
	token := issuer.Token(map[string]any{"exp": time.Now().Add(time.Minute).Unix()})
	expectCaller(t, a, "Bearer "+token, Caller{Name: "tester", Roles: Read}, nil)
	expectErrorAt(t, a, time.Now().Add(2*time.Minute), token, ErrExpired)
}

func TestCacheOfVerifiedTokensIsBounded(t *testing.T) {
	const capacity = 100
	v := newVerifiedTokens(capacity)
	now := time.Now()
	for i := range 10 * capacity {
		hash := tokenHash(sha256.Sum256(fmt.Append(nil, i)))
		expires := now.Add(time.Duration(i%2) * time.Hour) // every other token has expired
		v.add(&hash, credential{expires: expires}, now)
		if _, ok := v.find(&hash); !ok {
			t.Fatalf("token %d is not in the cache after it was added", i)
		}
		if len(v.byHash) > capacity {
			t.Fatalf("cached tokens after %d were added: got %d, want at most %d", i+1, len(v.byHash), capacity)
		}
	}
}

func TestCertificateIdentifiesItsCaller(t *testing.T) {
	ca := accesstest.NewAuthority(t)
	newLeaf := func(name string) *x509.Certificate {
		pair, _, _ := ca.Client(t.TempDir(), name)
		return pair.Leaf
	}
	// The line of ops has a token that is only valid together with a certificate.
	secret, opsLine := mustNewToken(t, Caller{Name: "ops", Roles: Admin}, time.Time{})
	file := filepath.Join(t.TempDir(), "tokens")
	mustWriteFile(t, file, "backup offline cert:backup\nold read expires=2020-01-01T00:00:00Z cert:old\n"+opsLine+" cert:ops\n")
	a := mustOpen(t, Options{Tokens: file})

	for _, c := range []struct {
		name, header string
		cert         *x509.Certificate
		want         string // the name of the caller
		wantErr      error
	}{
		{"by certificate", "", newLeaf("backup"), "backup", nil},
		{"a certificate that is not sufficient without a token", "", newLeaf("ops"), "", ErrMissing},
		{"the line has expired", "", newLeaf("old"), "", ErrExpired},
		{"a bad token beside a good certificate", "Bearer x", newLeaf("backup"), "", ErrInvalid},
		{"token and certificate", "Bearer " + secret, newLeaf("ops"), "ops", nil},
		{"token without its certificate", "Bearer " + secret, nil, "", errCertificate},
		{"token with another certificate", "Bearer " + secret, newLeaf("backup"), "", errCertificate},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, err := a.Authorize(time.Now(), c.header, c.cert)
			if got.Name != c.want || !errors.Is(err, c.wantErr) {
				t.Errorf("Authorize: got %+v and the error %v, want the caller %q and %v", got, err, c.want, c.wantErr)
			}
		})
	}
	t.Run("a certificate that has expired since the handshake", func(t *testing.T) {
		_, err := a.Authorize(time.Now().Add(3*time.Hour), "Bearer "+secret, newLeaf("ops"))
		if !errors.Is(err, errCertificate) {
			t.Errorf("Authorize: got the error %v, want %v", err, errCertificate)
		}
	})
}

func TestOpenRefusesIncompleteOptions(t *testing.T) {
	issuer := accesstest.NewJWTs(t, "one")
	// The file of the keys exists, so its absence cannot be the error of the cases that name it.
	if _, err := os.Stat(issuer.File); err != nil {
		t.Fatal(err)
	}

	for name, o := range map[string]Options{
		"nothing":                         {},
		"keys without issuer or audience": {JWKS: issuer.File},
		"keys without audience":           {JWKS: issuer.File, Issuer: "x"},
		"keys without issuer":             {JWKS: issuer.File, Audience: "x"},
		"a missing token file":            {Tokens: "missing"},
		"a missing JWKS file":             {JWKS: "missing", Issuer: "x", Audience: "x"},
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := Open(o); err == nil {
				t.Errorf("Open(%+v): got no error, want one", o)
			}
		})
	}
}

// FuzzAuthorize checks that no header makes Authorize panic, and that no header without the
// signature of the issuer authenticates a caller.
func FuzzAuthorize(f *testing.F) {
	issuer := accesstest.NewJWTs(f, "one")
	a := mustOpen(f, Options{JWKS: issuer.File})
	want := Caller{Name: "tester", Roles: Read}
	f.Add("Bearer " + issuer.Token(nil))
	f.Add("Bearer a.b.c")
	f.Add("Basic Zm9vOmJhcg==")
	f.Fuzz(func(t *testing.T, header string) {
		// The fuzzer may find other encodings of the good signature. They authenticate the same
		// caller, because the signed claims are the same.
		caller, err := a.Authorize(time.Now(), header, nil)
		if err == nil && caller != want {
			t.Errorf("Authorize(%q): got %+v, want %+v or an error", header, caller, want)
		}
		if err != nil && caller != (Caller{}) {
			t.Errorf("Authorize(%q): got %+v with the error %v, want no caller", header, caller, err)
		}
	})
}

// BenchmarkAuthorize measures the authentication of a caller that has called before, and of one
// that has not.
func BenchmarkAuthorize(b *testing.B) {
	secret, line := mustNewToken(b, Caller{Name: "web", Roles: Read}, time.Time{})
	file := filepath.Join(b.TempDir(), "tokens")
	if err := os.WriteFile(file, []byte(line), 0o600); err != nil {
		b.Fatal(err)
	}
	issuer := accesstest.NewJWTs(b, "one")
	a := mustOpen(b, Options{Tokens: file, JWKS: issuer.File})
	longJWT := "Bearer " + issuer.Token(map[string]any{"groups": strings.Repeat("x", 600)})

	for name, header := range map[string]string{
		"static":      "Bearer " + secret,
		"jwt":         "Bearer " + issuer.Token(nil),
		"jwt of 1 KB": longJWT,
	} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, err := a.Authorize(time.Now(), header, nil); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
	b.Run("jwt, first time", func(b *testing.B) {
		for b.Loop() {
			// Forget the tokens that were verified.
			a.keys.current(time.Now()).verified = newVerifiedTokens(maxVerifiedTokens)
			if _, err := a.Authorize(time.Now(), longJWT, nil); err != nil {
				b.Fatal(err)
			}
		}
	})
}
