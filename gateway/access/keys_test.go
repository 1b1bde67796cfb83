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
	"github.com/google/go-cmp/cmp"
)

func newRSAKey(t testing.TB, bits int) *rsa.PrivateKey {
	t.Helper()
	key, err := rsa.GenerateKey(rand.Reader, bits)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

func newECKey(t testing.TB, curve elliptic.Curve) *ecdsa.PrivateKey {
	t.Helper()
	key, err := ecdsa.GenerateKey(curve, rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

// mustWriteKeySet writes keys to a JWKS file and returns its path.
func mustWriteKeySet(t *testing.T, keys ...jose.JSONWebKey) string {
	t.Helper()
	data, err := json.Marshal(jose.JSONWebKeySet{Keys: keys})
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
	keys, err := loadKeys(mustWriteKeySet(t,
		jose.JSONWebKey{KeyID: "r", Key: newRSAKey(t, 2048).Public()},
		jose.JSONWebKey{KeyID: "e", Key: newECKey(t, elliptic.P256()).Public(), Use: "sig", Algorithm: "ES256"},
		jose.JSONWebKey{KeyID: "e2", Key: newECKey(t, elliptic.P256()).Public()},
		jose.JSONWebKey{KeyID: "d", Key: edwards},
		// These are for other algorithms or another use.
		jose.JSONWebKey{KeyID: "x1", Key: newECKey(t, elliptic.P384()).Public()},
		jose.JSONWebKey{KeyID: "x2", Key: newECKey(t, elliptic.P256()).Public(), Use: "enc"},
		jose.JSONWebKey{KeyID: "x3", Key: newRSAKey(t, 2048).Public(), Algorithm: "RS512"},
	))
	if err != nil {
		t.Fatal(err)
	}

	got := map[string]jose.SignatureAlgorithm{}
	for id, key := range keys.byID {
		got[id] = key.algorithm
	}
	want := map[string]jose.SignatureAlgorithm{"r": "RS256", "e": "ES256", "e2": "ES256", "d": "EdDSA"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("algorithms by key id (-want +got):\n%s", diff)
	}

	// A token may have no key id, if its algorithm has one key. It cannot choose the algorithm of a
	// key.
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
		if _, ok := keys.find(jose.Header{KeyID: c.id, Algorithm: c.algorithm}); ok != c.want {
			t.Errorf("key id %q and algorithm %q: found is %v, expected %v", c.id, c.algorithm, ok, c.want)
		}
	}
}

func TestLoadKeysRefusesUnsafeKeys(t *testing.T) {
	private := newECKey(t, elliptic.P256())
	withID := jose.JSONWebKey{KeyID: "a", Key: private.Public()}
	t.Setenv("GODEBUG", "rsa1024min=0") // otherwise the test cannot make a short key
	for name, c := range map[string]struct {
		file, wantErr string
	}{
		"no keys":              {mustWriteKeySet(t), "no key for"},
		"another curve":        {mustWriteKeySet(t, jose.JSONWebKey{Key: newECKey(t, elliptic.P521()).Public()}), "no key for"},
		"a symmetric key":      {mustWriteKeySet(t, jose.JSONWebKey{Key: []byte("a secret that is shared by both")}), "symmetric"},
		"a private key":        {mustWriteKeySet(t, jose.JSONWebKey{Key: private}), "private"},
		"a short key":          {mustWriteKeySet(t, jose.JSONWebKey{Key: newRSAKey(t, 1024).Public()}), "1024 bits"},
		"two keys with one id": {mustWriteKeySet(t, withID, withID), "key before"},
		"a missing file":       {"missing", "no such file"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := loadKeys(c.file)
			if err == nil || !strings.Contains(err.Error(), c.wantErr) {
				t.Errorf("got %v, expected an error with %q", err, c.wantErr)
			}
		})
	}
}

func TestLoadKeysRefusesMalformedFilesWithoutQuotingThem(t *testing.T) {
	for _, text := range []string{"", "{", "[]", `{"keys":[{"kty":"EC","d":"geheim"}]}`, `{"keys":[3]}`, `{"keys":[{"kty":"new"}]}`} {
		file := filepath.Join(t.TempDir(), "jwks.json")
		mustWriteFile(t, file, text)
		_, err := loadKeys(file)
		if err == nil || strings.Contains(err.Error(), "geheim") {
			t.Errorf("%q: got %v, expected an error that does not quote the file", text, err)
		}
	}
}
