package access

import (
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"encoding/json"
	"path/filepath"
	"strings"
	"testing"

	"github.com/go-jose/go-jose/v4"
)

func rsaKey(t testing.TB, bits int) *rsa.PrivateKey {
	t.Helper()
	key, err := rsa.GenerateKey(rand.Reader, bits)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

func ecKey(t testing.TB, curve elliptic.Curve) *ecdsa.PrivateKey {
	t.Helper()
	key, err := ecdsa.GenerateKey(curve, rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

func writeSet(t *testing.T, set ...jose.JSONWebKey) string {
	t.Helper()
	data, err := json.Marshal(jose.JSONWebKeySet{Keys: set})
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "jwks.json")
	mustWriteFile(t, file, string(data))
	return file
}

func TestLoadKeysSkipsKeysForOtherUses(t *testing.T) {
	edwards, _, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	all, err := loadKeys(writeSet(t,
		jose.JSONWebKey{KeyID: "r", Key: rsaKey(t, 2048).Public()},
		jose.JSONWebKey{KeyID: "e", Key: ecKey(t, elliptic.P256()).Public(), Use: "sig", Algorithm: "ES256"},
		jose.JSONWebKey{KeyID: "e2", Key: ecKey(t, elliptic.P256()).Public()},
		jose.JSONWebKey{KeyID: "d", Key: edwards},
		// For something else.
		jose.JSONWebKey{KeyID: "x1", Key: ecKey(t, elliptic.P384()).Public()},
		jose.JSONWebKey{KeyID: "x2", Key: ecKey(t, elliptic.P256()).Public(), Use: "enc"},
		jose.JSONWebKey{KeyID: "x3", Key: rsaKey(t, 2048).Public(), Algorithm: "RS512"},
	))
	if err != nil {
		t.Fatal(err)
	}
	for id, want := range map[string]jose.SignatureAlgorithm{
		"r": "RS256", "e": "ES256", "e2": "ES256", "d": "EdDSA", "x1": "", "x2": "", "x3": "",
	} {
		if got := all.byID[id].algorithm; got != want {
			t.Errorf("%s: %q, want %q", id, got, want)
		}
	}
	// A token without a key id, or with one that means another algorithm.
	for _, c := range []struct {
		id, algorithm string
		want          bool
	}{
		{"", "RS256", true},
		{"", "EdDSA", true},
		{"", "ES256", false}, // there are two
		{"e", "ES256", true},
		{"e", "RS256", false},
		{"e", "HS256", false},
		{"r", "none", false},
		{"x2", "ES256", false},
		{"nobody", "ES256", false},
		{"", "", false},
	} {
		if _, ok := all.find(jose.Header{KeyID: c.id, Algorithm: c.algorithm}); ok != c.want {
			t.Errorf("%q %q: %v", c.id, c.algorithm, ok)
		}
	}
}

func TestLoadKeysRefusesUnsafeKeys(t *testing.T) {
	private := ecKey(t, elliptic.P256())
	t.Setenv("GODEBUG", "rsa1024min=0")
	for _, c := range []struct {
		file, want string
	}{
		{writeSet(t), "no key for"},
		{writeSet(t, jose.JSONWebKey{Key: ecKey(t, elliptic.P521()).Public()}), "no key for"},
		{writeSet(t, jose.JSONWebKey{Key: []byte("a secret that is shared by both")}), "symmetric"},
		{writeSet(t, jose.JSONWebKey{Key: private}), "private"},
		{writeSet(t, jose.JSONWebKey{Key: rsaKey(t, 1024).Public()}), "1024 bits"},
		{writeSet(t, jose.JSONWebKey{KeyID: "a", Key: private.Public()}, jose.JSONWebKey{KeyID: "a", Key: private.Public()}), "key before"},
		{"missing", "no such file"},
	} {
		if _, err := loadKeys(c.file); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%v, want %s", err, c.want)
		}
	}
	for _, text := range []string{"", "{", "[]", `{"keys":[{"kty":"EC","d":"geheim"}]}`, `{"keys":[3]}`, `{"keys":[{"kty":"new"}]}`} {
		file := filepath.Join(t.TempDir(), "jwks.json")
		mustWriteFile(t, file, text)
		if _, err := loadKeys(file); err == nil || strings.Contains(err.Error(), "geheim") {
			t.Errorf("%s: %v", text, err)
		}
	}
}
