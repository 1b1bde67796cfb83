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

func mustOpen(t testing.TB, o Options) *Authenticator {
	t.Helper()
	if o.JWKS != "" && o.Issuer == "" {
		o.Issuer, o.Audience = accesstest.Issuer, accesstest.Audience
	}
	g, err := Open(o)
	if err != nil {
		t.Fatal(err)
	}
	return g
}

// expect authenticates a call with an Authorization header, and expects a caller or an error.
func (g *Authenticator) expect(t *testing.T, name, header string, want Caller, wantErr error) {
	t.Helper()
	got, err := g.Authorize(time.Now(), header, nil)
	if got != want || !errors.Is(err, wantErr) || (err == nil) != (wantErr == nil) {
		t.Errorf("%s: got %+v, %v; expected %+v, %v", name, got, err, want, wantErr)
	}
}

func TestStaticTokensIdentifyTheirCallers(t *testing.T) {
	file := filepath.Join(t.TempDir(), "tokens")
	web, ann := Caller{Name: "web", Roles: Read | Publish}, Caller{Name: "ann", Roles: Read, User: "ann"}
	webToken, webLine, _ := NewToken(web, time.Time{})
	annToken, annLine, _ := NewToken(ann, time.Now().Add(time.Hour))
	oldToken, oldLine, _ := NewToken(web, time.Now().Add(-time.Hour))
	mustWriteFile(t, file, strings.Join([]string{webLine, annLine, oldLine}, "\n"))
	g := mustOpen(t, Options{Tokens: file})
	g.expect(t, "web", "Bearer "+webToken, web, nil)
	g.expect(t, "the scheme in small letters", "bearer "+webToken, web, nil)
	g.expect(t, "ann", "Bearer "+annToken, ann, nil)
	g.expect(t, "expired", "Bearer "+oldToken, Caller{}, ErrExpired)
	g.expect(t, "none", "", Caller{}, ErrMissing)
	for name, header := range map[string]string{
		"another": "Bearer " + webToken[:len(webToken)-1] + "!", "shorter": "Bearer " + webToken[:20],
		"longer": "Bearer " + webToken + "x", "scheme alone": "Bearer ", "no scheme": webToken, "another scheme": "Basic " + webToken,
		"two": "Bearer " + webToken + ", Bearer " + webToken, "spaces": "Bearer  " + webToken, "garbage": "Bearer \x00\xff",
		"its hash": "Bearer " + webLine[strings.LastIndex(webLine, ":")+1:], "huge": "Bearer " + strings.Repeat("a", maxTokenBytes+1),
		"a JWT where there are none": "Bearer a.b.c",
	} {
		g.expect(t, name, header, Caller{}, ErrInvalid)
	}
	// A token that is removed from the file is no longer valid, and neither is any token when the
	// file is empty.
	mustWriteFile(t, file, annLine)
	if _, err := g.Authorize(afterChecks(1), "Bearer "+webToken, nil); !errors.Is(err, ErrInvalid) {
		t.Error(err)
	}
	mustWriteFile(t, file, "")
	if _, err := g.Authorize(afterChecks(2), "Bearer "+annToken, nil); !errors.Is(err, ErrInvalid) {
		t.Error(err)
	}
}

func TestJWTIsAcceptedOnlyWithValidClaims(t *testing.T) {
	_, edwards, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	now := time.Now()
	for _, j := range []*accesstest.JWTs{
		accesstest.NewJWTs(t, "one"),
		accesstest.JWTsOf(t, "two", jose.RS256, rsaKey(t, 2048)),
		accesstest.JWTsOf(t, "three", jose.EdDSA, edwards),
	} {
		g := mustOpen(t, Options{JWKS: j.File})
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
			g.expect(t, c.name, "Bearer "+token, c.want, c.err)
			g.expect(t, c.name+", again", "Bearer "+token, c.want, c.err) // what was good is remembered now
		}
	}
}

// sign makes a JWT as no issuer would make it.
func sign(header, payload string, mac func([]byte) []byte) string {
	encode := base64.RawURLEncoding.EncodeToString
	signed := encode([]byte(header)) + "." + encode([]byte(payload))
	return signed + "." + encode(mac([]byte(signed)))
}

func TestForgedJWTsAreRefused(t *testing.T) {
	j, other := accesstest.NewJWTs(t, "one"), accesstest.NewJWTs(t, "one")
	g := mustOpen(t, Options{JWKS: j.File})
	good := j.Token(nil)
	g.expect(t, "good", "Bearer "+good, Caller{Name: "tester", Roles: Read}, nil)
	parts := strings.Split(good, ".")
	payload, _ := base64.RawURLEncoding.DecodeString(parts[1])
	payloadWithAdmin := base64.RawURLEncoding.EncodeToString([]byte(strings.Replace(string(payload), "read", "admin", 1)))
	public, err := j.Public().MarshalJSON()
	if err != nil {
		t.Fatal(err)
	}
	der, _ := x509.MarshalPKIXPublicKey(j.Public().Key)
	hs := func(key []byte) func([]byte) []byte {
		return func(signed []byte) []byte {
			mac := hmac.New(sha256.New, key)
			mac.Write(signed)
			return mac.Sum(nil)
		}
	}
	otherPublic, _ := other.Public().MarshalJSON()
	embedded := strings.Split(other.Token(nil), ".")
	none := func([]byte) []byte { return nil }
	for name, token := range map[string]string{
		"another key of the same id":   other.Token(nil),
		"another id":                   accesstest.NewJWTs(t, "two").Token(nil),
		"more roles":                   parts[0] + "." + payloadWithAdmin + "." + parts[2],
		"no signature":                 parts[0] + "." + parts[1] + ".",
		"half a signature":             good[:len(good)-40],
		"alg none":                     sign(`{"alg":"none","kid":"one"}`, string(payload), none),
		"alg NONE":                     sign(`{"alg":"NONE","kid":"one"}`, string(payload), none),
		"HS256 with the public key":    sign(`{"alg":"HS256","kid":"one"}`, string(payload), hs(public)),
		"HS256 with its DER":           sign(`{"alg":"HS256","kid":"one"}`, string(payload), hs(der)),
		"an embedded key":              sign(`{"alg":"ES256","kid":"one","jwk":`+string(otherPublic)+`}`, string(payload), func([]byte) []byte { b, _ := base64.RawURLEncoding.DecodeString(embedded[2]); return b }),
		"a key from afar":              sign(`{"alg":"ES256","jku":"https://example.com/jwks.json"}`, string(payload), none),
		"another algorithm of the key": sign(`{"alg":"ES384","kid":"one"}`, string(payload), func([]byte) []byte { return make([]byte, 96) }),
		"zeros":                        sign(`{"alg":"ES256","kid":"one"}`, string(payload), func([]byte) []byte { return make([]byte, 64) }),
		"no JSON":                      sign(`{"alg":"ES256","kid":"one"}`, "payload", func([]byte) []byte { return make([]byte, 64) }),
		"dots":                         "..",
		"five parts":                   "a.b.c.d.e",
		"text":                         "a.b.c",
	} {
		g.expect(t, name, "Bearer "+token, Caller{}, ErrInvalid)
		if _, err := g.Authorize(time.Now(), "Bearer "+token, nil); err != nil && err.Error() != ErrInvalid.Error() {
			t.Errorf("%s: got the error %q, expected no more than %q", name, err, ErrInvalid)
		}
	}
}

// Keys can be rotated without a refused call: the new key is added, then used, and then the old key
// is removed. Tokens of the old key are refused from then on, although they were verified before.
func TestKeysRotateWithoutRefusedCalls(t *testing.T) {
	before, after := accesstest.NewJWTs(t, "before"), accesstest.NewJWTs(t, "after")
	g := mustOpen(t, Options{JWKS: before.File})
	expectNewToken := func(now time.Time, j *accesstest.JWTs, want error) {
		t.Helper()
		if _, err := g.Authorize(now, "Bearer "+j.Token(map[string]any{"iat": nil}), nil); !errors.Is(err, want) {
			t.Errorf("a new token: got %v, expected %v", err, want)
		}
	}
	old := "Bearer " + before.Token(nil)
	expectNewToken(time.Now(), after, ErrInvalid)
	accesstest.WriteKeys(t, before.File, before, after)
	expectNewToken(afterChecks(1), before, nil)
	expectNewToken(afterChecks(1), after, nil)
	if _, err := g.Authorize(afterChecks(1), old, nil); err != nil {
		t.Errorf("a token of the old key, while both keys are in the file: %v", err)
	}
	accesstest.WriteKeys(t, before.File, after)
	if _, err := g.Authorize(afterChecks(2), old, nil); !errors.Is(err, ErrInvalid) {
		t.Errorf("a token whose key was removed: got %v, expected %v", err, ErrInvalid)
	}
	expectNewToken(afterChecks(2), after, nil)
	// If the file is invalid, the previous keys stay.
	mustWriteFile(t, before.File, "{")
	expectNewToken(afterChecks(3), after, nil)
}

// A JWT that was verified once is refused after it has expired.
func TestVerifiedTokenExpires(t *testing.T) {
	j := accesstest.NewJWTs(t, "one")
	g := mustOpen(t, Options{JWKS: j.File})
	header := "Bearer " + j.Token(map[string]any{"exp": time.Now().Add(time.Minute).Unix()})
	g.expect(t, "fresh", header, Caller{Name: "tester", Roles: Read}, nil)
	if _, err := g.Authorize(time.Now().Add(2*time.Minute), header, nil); !errors.Is(err, ErrExpired) {
		t.Errorf("two minutes later: got %v, expected %v", err, ErrExpired)
	}
}

func TestCacheOfVerifiedTokensIsBounded(t *testing.T) {
	v := newVerifiedTokens(100)
	now := time.Now()
	for i := range 1000 {
		hash := tokenHash(sha256.Sum256(fmt.Append(nil, i)))
		v.add(&hash, credential{expires: now.Add(time.Duration(i%2) * time.Hour)}, now)
		if _, ok := v.find(&hash); !ok || len(v.byHash) > 100 {
			t.Fatalf("after %d tokens: %d are cached, expected at most 100 with the last one among them (it is: %v)", i+1, len(v.byHash), ok)
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
	g := mustOpen(t, Options{Tokens: file})
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
		got, err := g.Authorize(time.Now(), c.header, c.cert)
		if got.Name != c.want || !errors.Is(err, c.err) {
			t.Errorf("%s: got %+v, %v; expected the caller %q, %v", c.name, got, err, c.want, c.err)
		}
	}
	if _, err := g.Authorize(time.Now().Add(3*time.Hour), "Bearer "+secret, leaf("ops")); !errors.Is(err, errCertificate) {
		t.Errorf("a certificate that has expired since the handshake: got %v, expected %v", err, errCertificate)
	}
}

func TestOpenRefusesIncompleteOptions(t *testing.T) {
	j := accesstest.NewJWTs(t, "one")
	for _, o := range []Options{
		{},
		{JWKS: j.File},
		{JWKS: j.File, Issuer: "x"},
		{JWKS: j.File, Audience: "x"},
		{Tokens: "missing"},
		{JWKS: "missing", Issuer: "x", Audience: "x"},
	} {
		if _, err := Open(o); err == nil {
			t.Errorf("Open accepts %+v, expected an error", o)
		}
	}
	if _, err := os.Stat(j.File); err != nil {
		t.Error(err)
	}
}

// No header makes it panic, and no unsigned header authenticates a caller.
func FuzzAuthorize(f *testing.F) {
	j := accesstest.NewJWTs(f, "one")
	g := mustOpen(f, Options{JWKS: j.File})
	good := j.Token(nil)
	want := Caller{Name: "tester", Roles: Read}
	f.Add("Bearer " + good)
	f.Add("Bearer a.b.c")
	f.Add("Basic Zm9vOmJhcg==")
	f.Fuzz(func(t *testing.T, header string) {
		// A signature can be written in several ways; what was signed cannot.
		if caller, err := g.Authorize(time.Now(), header, nil); err == nil && caller != want || err != nil && caller != (Caller{}) {
			t.Errorf("%q: got %+v, %v; expected %+v or an error", header, caller, err, want)
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
	g := mustOpen(b, Options{Tokens: file, JWKS: j.File})
	long := "Bearer " + j.Token(map[string]any{"groups": strings.Repeat("x", 600)})
	for name, header := range map[string]string{"static": "Bearer " + secret, "jwt": "Bearer " + j.Token(nil), "jwt of 1 KB": long} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, err := g.Authorize(time.Now(), header, nil); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
	b.Run("jwt, first time", func(b *testing.B) {
		for b.Loop() {
			g.keys.current(time.Now()).verified = newVerifiedTokens(maxVerifiedTokens)
			if _, err := g.Authorize(time.Now(), long, nil); err != nil {
				b.Fatal(err)
			}
		}
	})
}
