package accesstest

import (
	"crypto"
	"encoding/json"
	"maps"
	"path/filepath"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/jwt"

	"github.com/skein-feed/skein/events/atomicfile"
)

// The claims of a good token.
const (
	Issuer   = "https://issuer.example"
	Audience = "skein"
)

// JWTs signs tokens with a key.
type JWTs struct {
	t   testing.TB
	id  string
	alg jose.SignatureAlgorithm
	key crypto.Signer
	// File is the JWKS file with the public key.
	File string
}

// NewJWTs makes an issuer with an ES256 key of an id.
func NewJWTs(t testing.TB, id string) *JWTs {
	t.Helper()
	return JWTsOf(t, id, jose.ES256, newKey(t))
}

// JWTsOf makes an issuer with a key.
func JWTsOf(t testing.TB, id string, alg jose.SignatureAlgorithm, key crypto.Signer) *JWTs {
	t.Helper()
	j := &JWTs{t: t, id: id, alg: alg, key: key, File: filepath.Join(t.TempDir(), "jwks.json")}
	WriteKeys(t, j.File, j)
	return j
}

// Public is the key as a JWKS file has it.
func (j *JWTs) Public() jose.JSONWebKey {
	return jose.JSONWebKey{Key: j.key.Public(), KeyID: j.id, Algorithm: string(j.alg), Use: "sig"}
}

// WriteKeys writes the keys of some issuers as a JWKS file. It appears whole.
func WriteKeys(t testing.TB, file string, of ...*JWTs) {
	t.Helper()
	var set jose.JSONWebKeySet
	for _, j := range of {
		set.Keys = append(set.Keys, j.Public())
	}
	data, err := json.Marshal(set)
	if err != nil {
		t.Fatal(err)
	}
	if err := atomicfile.Write(file, data); err != nil {
		t.Fatal(err)
	}
}

// Token signs a token that is good for an hour, but for the claims given; nil leaves one out.
func (j *JWTs) Token(claims map[string]any) string {
	j.t.Helper()
	all := map[string]any{
		"iss": Issuer, "aud": Audience, "sub": "tester", "exp": time.Now().Add(time.Hour).Unix(), "skein_roles": []string{"read"},
	}
	maps.Copy(all, claims)
	maps.DeleteFunc(all, func(_ string, v any) bool { return v == nil })
	signer, err := jose.NewSigner(jose.SigningKey{Algorithm: j.alg, Key: jose.JSONWebKey{Key: j.key, KeyID: j.id}}, nil)
	if err != nil {
		j.t.Fatal(err)
	}
	token, err := jwt.Signed(signer).Claims(all).Serialize()
	if err != nil {
		j.t.Fatal(err)
	}
	return token
}
