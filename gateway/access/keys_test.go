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
	edwardsKey, _, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	file := mustWriteKeySet(t,
		jose.JSONWebKey{KeyID: "r", Key: newRSAKey(t, 2048).Public()},
		jose.JSONWebKey{KeyID: "e", Key: newECKey(t, elliptic.P256()).Public(), Use: "sig", Algorithm: "ES256"},
		jose.JSONWebKey{KeyID: "e2", Key: newECKey(t, elliptic.P256()).Public()},
		jose.JSONWebKey{KeyID: "d", Key: edwardsKey},
		// These are for other algorithms or another use.
		jose.JSONWebKey{KeyID: "x1", Key: newECKey(t, elliptic.P384()).Public()},
		jose.JSONWebKey{KeyID: "x2", Key: newECKey(t, elliptic.P256()).Public(), Use: "enc"},
		jose.JSONWebKey{KeyID: "x3", Key: newRSAKey(t, 2048).Public(), Algorithm: "RS512"},
	)
	keys, err := loadKeys(file)
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

	// A token need not name its key if there is only one key for its algorithm. It cannot choose
	// the algorithm of a key.
	for _, c := range []struct {
		name, id, algorithm string
		want                bool
	}{
		{"no id, one RSA key", "", "RS256", true},
		{"no id, one Edwards key", "", "EdDSA", true},
		{"no id, two elliptic keys", "", "ES256", false},
		{"an id and its algorithm", "e", "ES256", true},
		{"an id and another algorithm", "e", "RS256", false},
		{"an id and HMAC", "e", "HS256", false},
		{"an id and no signature", "r", "none", false},
		{"a key for another use", "x2", "ES256", false},
		{"an unknown id", "nobody", "ES256", false},
		{"neither id nor algorithm", "", "", false},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, got := keys.find(jose.Header{KeyID: c.id, Algorithm: c.algorithm})
			if got != c.want {
				t.Errorf("key with the id %q and the algorithm %q is found: got %t, want %t", c.id, c.algorithm, got, c.want)
			}
		})
	}
}

func TestLoadKeysRefusesUnsafeKeys(t *testing.T) {
	t.Setenv("GODEBUG", "rsa1024min=0") // otherwise the test cannot make a short key
	private := newECKey(t, elliptic.P256())
	withID := jose.JSONWebKey{KeyID: "a", Key: private.Public()}

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
				t.Errorf("loadKeys: got the error %v, want %q in it", err, c.wantErr)
			}
		})
	}
}

func TestLoadKeysRefusesMalformedFilesWithoutQuotingThem(t *testing.T) {
	const secret = "geheim"
	for name, text := range map[string]string{
		"an empty file":           "",
		"not JSON":                "{",
		"a list":                  "[]",
		"a key without its curve": `{"keys":[{"kty":"EC","d":"` + secret + `"}]}`,
		"a number for a key":      `{"keys":[3]}`,
		"an unknown type of key":  `{"keys":[{"kty":"new"}]}`,
	} {
		t.Run(name, func(t *testing.T) {
			file := filepath.Join(t.TempDir(), "jwks.json")
			mustWriteFile(t, file, text)
			_, err := loadKeys(file)
			if err == nil {
				t.Fatalf("loadKeys of %q: got no error, want one", text)
			}
			if strings.Contains(err.Error(), secret) {
				t.Errorf("loadKeys of %q: got the error %v, want one that does not quote the file", text, err)
			}
		})
	}
}
