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

// The issuer and the audience of a valid token.
const (
	Issuer   = "https://issuer.example"
	Audience = "skein"
)

// JWTs issues JWTs that are signed with one key.
type JWTs struct {
	t   testing.TB
	id  string
	alg jose.SignatureAlgorithm
	key crypto.Signer
	// File is the JWKS file with the public key.
	File string
}

// NewJWTs returns an issuer with a new ES256 key, which has the given id.
func NewJWTs(t testing.TB, id string) *JWTs {
	t.Helper()
	return JWTsOf(t, id, jose.ES256, newKey(t))
}

// JWTsOf returns an issuer with the given key.
func JWTsOf(t testing.TB, id string, alg jose.SignatureAlgorithm, key crypto.Signer) *JWTs {
	t.Helper()
	j := &JWTs{t: t, id: id, alg: alg, key: key, File: filepath.Join(t.TempDir(), "jwks.json")}
	WriteKeys(t, j.File, j)
	return j
}

// Public returns the public key as a JWKS file has it.
func (j *JWTs) Public() jose.JSONWebKey {
	return jose.JSONWebKey{Key: j.key.Public(), KeyID: j.id, Algorithm: string(j.alg), Use: "sig"}
}

// WriteKeys writes the public keys of some issuers to a JWKS file. It replaces the file atomically.
func WriteKeys(t testing.TB, file string, issuers ...*JWTs) {
	t.Helper()
	var set jose.JSONWebKeySet
	for _, j := range issuers {
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

// Token returns a signed token, which is valid for an hour unless claims says otherwise. claims
// replace the claims of a valid token. A claim that is nil is left out of the token.
func (j *JWTs) Token(claims map[string]any) string {
	j.t.Helper()
	all := map[string]any{
		"iss":         Issuer,
		"aud":         Audience,
		"sub":         "tester",
		"exp":         time.Now().Add(time.Hour).Unix(),
		"skein_roles": []string{"read"},
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
