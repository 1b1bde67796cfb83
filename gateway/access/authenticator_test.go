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

// expect runs a subtest, which authenticates a call with an Authorization header, and expects a
// caller or an error.
func (a *Authenticator) expect(t *testing.T, name, header string, want Caller, wantErr error) {
	t.Helper()
	t.Run(name, func(t *testing.T) {
		t.Helper()
		got, err := a.Authorize(time.Now(), header, nil)
		if got != want || !errors.Is(err, wantErr) || (err == nil) != (wantErr == nil) {
			t.Errorf("got %+v, %v; expected %+v, %v", got, err, want, wantErr)
		}
	})
}

// expectErrorAt expects the error want, or none if want is nil, for a call at a time with a token.
func (a *Authenticator) expectErrorAt(t *testing.T, now time.Time, token string, want error) {
	t.Helper()
	_, err := a.Authorize(now, "Bearer "+token, nil)
	if !errors.Is(err, want) {
		t.Errorf("got the error %v, expected %v", err, want)
	}
}

func TestStaticTokensIdentifyTheirCallers(t *testing.T) {
	web := Caller{Name: "web", Roles: Read | Publish}
	ann := Caller{Name: "ann", Roles: Read, User: "ann"}
	webToken, webLine, _ := NewToken(web, time.Time{})
	annToken, annLine, _ := NewToken(ann, time.Now().Add(time.Hour))
	oldToken, oldLine, _ := NewToken(web, time.Now().Add(-time.Hour))
	file := filepath.Join(t.TempDir(), "tokens")
	mustWriteFile(t, file, strings.Join([]string{webLine, annLine, oldLine}, "\n"))
	a := mustOpen(t, Options{Tokens: file})

	a.expect(t, "web", "Bearer "+webToken, web, nil)
	a.expect(t, "the scheme in small letters", "bearer "+webToken, web, nil)
	a.expect(t, "ann", "Bearer "+annToken, ann, nil)
	a.expect(t, "expired", "Bearer "+oldToken, Caller{}, ErrExpired)
	a.expect(t, "none", "", Caller{}, ErrMissing)
	for name, header := range map[string]string{
		"another":                    "Bearer " + webToken[:len(webToken)-1] + "!",
		"shorter":                    "Bearer " + webToken[:20],
		"longer":                     "Bearer " + webToken + "x",
		"scheme alone":               "Bearer ",
		"no scheme":                  webToken,
		"another scheme":             "Basic " + webToken,
		"two":                        "Bearer " + webToken + ", Bearer " + webToken,
		"spaces":                     "Bearer  " + webToken,
		"garbage":                    "Bearer \x00\xff",
		"its hash":                   "Bearer " + webLine[strings.LastIndex(webLine, ":")+1:],
		"huge":                       "Bearer " + strings.Repeat("a", maxTokenBytes+1),
		"a JWT where there are none": "Bearer a.b.c",
	} {
		a.expect(t, name, header, Caller{}, ErrInvalid)
	}

	// A token that is removed from the file is no longer valid, and neither is any token when the
	// file is empty.
	mustWriteFile(t, file, annLine)
	a.expectErrorAt(t, afterChecks(1), webToken, ErrInvalid)
	mustWriteFile(t, file, "")
	a.expectErrorAt(t, afterChecks(2), annToken, ErrInvalid)
}

func TestJWTIsAcceptedOnlyWithValidClaims(t *testing.T) {
	_, edwards, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	now := time.Now()
	for algorithm, j := range map[string]*accesstest.JWTs{
		"ES256": accesstest.NewJWTs(t, "one"),
		"RS256": accesstest.JWTsOf(t, "two", jose.RS256, newRSAKey(t, 2048)),
		"EdDSA": accesstest.JWTsOf(t, "three", jose.EdDSA, edwards),
	} {
		a := mustOpen(t, Options{JWKS: j.File})
		for _, c := range []struct {
			name   string
			claims map[string]any
			want   Caller
			err    error
		}{
			{"good", nil, Caller{Name: "tester", Roles: Read}, nil},
			{"bound", map[string]any{"skein_user": "ann"}, Caller{Name: "tester", Roles: Read, User: "ann"}, nil},
			{"scopes", map[string]any{"skein_roles": "openid publish offline"}, Caller{Name: "tester", Roles: Publish | Offline}, nil},
			{"no roles", map[string]any{"skein_roles": nil}, Caller{Name: "tester"}, nil},
			{"roles of others", map[string]any{"skein_roles": []string{"Read", "root"}}, Caller{Name: "tester"}, nil},
			{"no subject", map[string]any{"sub": nil}, Caller{Name: "jwt", Roles: Read}, nil},
			{"a subject for the log", map[string]any{"sub": "a\nlevel=ERROR"}, Caller{Name: "jwt", Roles: Read}, nil},
			{"several audiences", map[string]any{"aud": []string{"other", "skein"}}, Caller{Name: "tester", Roles: Read}, nil},
			{"just expired", map[string]any{"exp": now.Add(-10 * time.Second).Unix()}, Caller{Name: "tester", Roles: Read}, nil},
			{"expired", map[string]any{"exp": now.Add(-time.Minute).Unix()}, Caller{}, ErrExpired},
			{"no expiry", map[string]any{"exp": nil}, Caller{}, errNoExpiry},
			{"not yet", map[string]any{"nbf": now.Add(time.Minute).Unix()}, Caller{}, errNotYet},
			{"issued in the future", map[string]any{"iat": now.Add(time.Minute).Unix()}, Caller{}, errNotYet},
			{"another audience", map[string]any{"aud": "other"}, Caller{}, errAudience},
			{"no audience", map[string]any{"aud": nil}, Caller{}, errAudience},
			{"another issuer", map[string]any{"iss": accesstest.Issuer + "/"}, Caller{}, errIssuer},
			{"no issuer", map[string]any{"iss": nil}, Caller{}, errIssuer},
			{"an empty user", map[string]any{"skein_user": ""}, Caller{}, errClaims},
			{"no user's id", map[string]any{"skein_user": "a b"}, Caller{}, errClaims},
			{"null for a user", map[string]any{"skein_user": json.RawMessage("null")}, Caller{}, errClaims},
			{"several users", map[string]any{"skein_user": []string{"ann"}}, Caller{}, errClaims},
			{"roles of another shape", map[string]any{"skein_roles": 15}, Caller{}, errClaims},
			{"expiry of another shape", map[string]any{"exp": "never"}, Caller{}, errClaims},
		} {
			token := j.Token(c.claims)
			a.expect(t, algorithm+"/"+c.name, "Bearer "+token, c.want, c.err)
			// The second time, a good token comes from the cache.
			a.expect(t, algorithm+"/"+c.name+", again", "Bearer "+token, c.want, c.err)
		}
	}
}

// forgeJWT returns a JWT with any header, payload and signature.
func forgeJWT(header, payload string, signature func(signed []byte) []byte) string {
	encode := base64.RawURLEncoding.EncodeToString
	signed := encode([]byte(header)) + "." + encode([]byte(payload))
	return signed + "." + encode(signature([]byte(signed)))
}

func TestForgedJWTsAreRefused(t *testing.T) {
	j := accesstest.NewJWTs(t, "one")
	other := accesstest.NewJWTs(t, "one")
	a := mustOpen(t, Options{JWKS: j.File})
	good := j.Token(nil)
	a.expect(t, "good", "Bearer "+good, Caller{Name: "tester", Roles: Read}, nil)

	parts := strings.Split(good, ".")
	payloadJSON, _ := base64.RawURLEncoding.DecodeString(parts[1])
	payload := string(payloadJSON)
	payloadWithAdmin := base64.RawURLEncoding.EncodeToString([]byte(strings.Replace(payload, "read", "admin", 1)))
	public, err := j.Public().MarshalJSON()
	if err != nil {
		t.Fatal(err)
	}
	der, _ := x509.MarshalPKIXPublicKey(j.Public().Key)
	otherPublic, _ := other.Public().MarshalJSON()
	otherSignature, _ := base64.RawURLEncoding.DecodeString(strings.Split(other.Token(nil), ".")[2])

	// These return signatures.
	hmacWith := func(key []byte) func([]byte) []byte {
		return func(signed []byte) []byte {
			mac := hmac.New(sha256.New, key)
			mac.Write(signed)
			return mac.Sum(nil)
		}
	}
	fixed := func(signature []byte) func([]byte) []byte { return func([]byte) []byte { return signature } }
	none := fixed(nil)
	zeros := fixed(make([]byte, 64))

	for name, token := range map[string]string{
		"another key of the same id":   other.Token(nil),
		"another id":                   accesstest.NewJWTs(t, "two").Token(nil),
		"more roles":                   parts[0] + "." + payloadWithAdmin + "." + parts[2],
		"no signature":                 parts[0] + "." + parts[1] + ".",
		"half a signature":             good[:len(good)-40],
		"alg none":                     forgeJWT(`{"alg":"none","kid":"one"}`, payload, none),
		"alg NONE":                     forgeJWT(`{"alg":"NONE","kid":"one"}`, payload, none),
		"HS256 with the public key":    forgeJWT(`{"alg":"HS256","kid":"one"}`, payload, hmacWith(public)),
		"HS256 with its DER":           forgeJWT(`{"alg":"HS256","kid":"one"}`, payload, hmacWith(der)),
		"an embedded key":              forgeJWT(`{"alg":"ES256","kid":"one","jwk":`+string(otherPublic)+`}`, payload, fixed(otherSignature)),
		"a key from afar":              forgeJWT(`{"alg":"ES256","jku":"https://example.com/jwks.json"}`, payload, none),
		"another algorithm of the key": forgeJWT(`{"alg":"ES384","kid":"one"}`, payload, fixed(make([]byte, 96))),
		"zeros":                        forgeJWT(`{"alg":"ES256","kid":"one"}`, payload, zeros),
		"no JSON":                      forgeJWT(`{"alg":"ES256","kid":"one"}`, "payload", zeros),
		"dots":                         "..",
		"five parts":                   "a.b.c.d.e",
		"text":                         "a.b.c",
	} {
		a.expect(t, name, "Bearer "+token, Caller{}, ErrInvalid)
		if _, err := a.Authorize(time.Now(), "Bearer "+token, nil); err != nil && err.Error() != ErrInvalid.Error() {
			t.Errorf("%s: got the error %q, expected no more than %q", name, err, ErrInvalid)
		}
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
	// Each call signs a new token, which is not in the cache.
	expectNewToken := func(now time.Time, j *accesstest.JWTs, want error) {
		t.Helper()
		a.expectErrorAt(t, now, j.Token(nil), want)
	}
	old := before.Token(nil)
	expectNewToken(time.Now(), after, ErrInvalid)

	accesstest.WriteKeys(t, file, before, after)
	expectNewToken(afterChecks(1), before, nil)
	expectNewToken(afterChecks(1), after, nil)
	a.expectErrorAt(t, afterChecks(1), old, nil)

	accesstest.WriteKeys(t, file, after)
	a.expectErrorAt(t, afterChecks(2), old, ErrInvalid)
	expectNewToken(afterChecks(2), after, nil)

	// If the file is invalid, the previous keys stay.
	mustWriteFile(t, file, "{")
	expectNewToken(afterChecks(3), after, nil)
}

// TestVerifiedTokenExpires demands that a JWT that was verified once is refused after it has
// expired.
func TestVerifiedTokenExpires(t *testing.T) {
	j := accesstest.NewJWTs(t, "one")
	a := mustOpen(t, Options{JWKS: j.File})
	token := j.Token(map[string]any{"exp": time.Now().Add(time.Minute).Unix()})
	a.expect(t, "fresh", "Bearer "+token, Caller{Name: "tester", Roles: Read}, nil)
	a.expectErrorAt(t, time.Now().Add(2*time.Minute), token, ErrExpired)
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
			t.Fatalf("after %d tokens, %d are cached, expected at most %d", i+1, len(v.byHash), capacity)
		}
	}
}

func TestCertificateIdentifiesItsCaller(t *testing.T) {
	ca := accesstest.NewAuthority(t)
	leaf := func(name string) *x509.Certificate {
		pair, _, _ := ca.Client(t.TempDir(), name)
		return pair.Leaf
	}
	file := filepath.Join(t.TempDir(), "tokens")
	secret, line, _ := NewToken(Caller{Name: "ops", Roles: Admin}, time.Time{})
	mustWriteFile(t, file, "backup offline cert:backup\nold read expires=2020-01-01T00:00:00Z cert:old\n"+line+" cert:ops\n")
	a := mustOpen(t, Options{Tokens: file})

	for _, c := range []struct {
		name, header string
		cert         *x509.Certificate
		want         string
		err          error
	}{
		{"by certificate", "", leaf("backup"), "backup", nil},
		{"a certificate that nobody names", "", leaf("ops"), "", ErrMissing},
		{"an old line", "", leaf("old"), "", ErrExpired},
		{"a bad token beside a good certificate", "Bearer x", leaf("backup"), "", ErrInvalid},
		{"token and certificate", "Bearer " + secret, leaf("ops"), "ops", nil},
		{"token without its certificate", "Bearer " + secret, nil, "", errCertificate},
		{"token with another certificate", "Bearer " + secret, leaf("backup"), "", errCertificate},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, err := a.Authorize(time.Now(), c.header, c.cert)
			if got.Name != c.want || !errors.Is(err, c.err) {
				t.Errorf("got %+v, %v; expected the caller %q, %v", got, err, c.want, c.err)
			}
		})
	}
	t.Run("a certificate that has expired since the handshake", func(t *testing.T) {
		_, err := a.Authorize(time.Now().Add(3*time.Hour), "Bearer "+secret, leaf("ops"))
		if !errors.Is(err, errCertificate) {
			t.Errorf("got the error %v, expected %v", err, errCertificate)
		}
	})
}

func TestOpenRefusesIncompleteOptions(t *testing.T) {
	j := accesstest.NewJWTs(t, "one")
	for name, o := range map[string]Options{
		"nothing":                         {},
		"keys without issuer or audience": {JWKS: j.File},
		"keys without audience":           {JWKS: j.File, Issuer: "x"},
		"keys without issuer":             {JWKS: j.File, Audience: "x"},
		"a missing token file":            {Tokens: "missing"},
		"a missing JWKS file":             {JWKS: "missing", Issuer: "x", Audience: "x"},
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := Open(o); err == nil {
				t.Errorf("Open accepts %+v, expected an error", o)
			}
		})
	}
	// The file of the keys exists, so that its absence was not the error.
	if _, err := os.Stat(j.File); err != nil {
		t.Error(err)
	}
}

// FuzzAuthorize demands that no header makes Authorize panic, and that no header without the
// signature of the issuer authenticates a caller.
func FuzzAuthorize(f *testing.F) {
	j := accesstest.NewJWTs(f, "one")
	a := mustOpen(f, Options{JWKS: j.File})
	good := j.Token(nil)
	want := Caller{Name: "tester", Roles: Read}
	f.Add("Bearer " + good)
	f.Add("Bearer a.b.c")
	f.Add("Basic Zm9vOmJhcg==")
	f.Fuzz(func(t *testing.T, header string) {
		// The fuzzer may find other encodings of the good signature. They authenticate the same
		// caller, because the signed claims are the same.
		caller, err := a.Authorize(time.Now(), header, nil)
		if err == nil && caller != want {
			t.Errorf("%q: got %+v, expected %+v or an error", header, caller, want)
		}
		if err != nil && caller != (Caller{}) {
			t.Errorf("%q: got %+v with the error %v, expected no caller", header, caller, err)
		}
	})
}

// BenchmarkAuthorize measures the authentication of a caller that has called before, and of one
// that has not.
func BenchmarkAuthorize(b *testing.B) {
	file := filepath.Join(b.TempDir(), "tokens")
	secret, line, _ := NewToken(Caller{Name: "web", Roles: Read}, time.Time{})
	if err := os.WriteFile(file, []byte(line), 0o600); err != nil {
		b.Fatal(err)
	}
	j := accesstest.NewJWTs(b, "one")
	a := mustOpen(b, Options{Tokens: file, JWKS: j.File})
	long := "Bearer " + j.Token(map[string]any{"groups": strings.Repeat("x", 600)})
	for name, header := range map[string]string{
		"static": "Bearer " + secret, "jwt": "Bearer " + j.Token(nil), "jwt of 1 KB": long,
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
			a.keys.current(time.Now()).verified = newVerifiedTokens(maxVerifiedTokens)
			if _, err := a.Authorize(time.Now(), long, nil); err != nil {
				b.Fatal(err)
			}
		}
	})
}
