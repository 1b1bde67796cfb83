package access

import (
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rsa"
	"errors"
	"fmt"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/json"
)

// algorithms are those that a JWT may be signed with. All are asymmetric: the keys of this service can verify tokens, not make them.
var algorithms = []jose.SignatureAlgorithm{jose.RS256, jose.ES256, jose.EdDSA}

// minRSABits is what is thought safe until 2030, and what every issuer has.
const minRSABits = 2048

// keys are the public keys of an issuer.
type keys struct {
	byID map[string]key
	// only is the key for tokens that name none: there is one key for each algorithm at most, or they are refused.
	onlyKey map[jose.SignatureAlgorithm]key
	// verified are the tokens that were found good by these keys. They are forgotten together.
	verified *verifiedTokens
}

type key struct {
	algorithm jose.SignatureAlgorithm
	public    any
}

// loadKeys reads a JSON Web Key Set (RFC 7517).
func loadKeys(name string) (*keys, error) {
	data, err := readFile(name)
	if err != nil {
		return nil, err
	}
	var set struct {
		Keys []json.RawMessage `json:"keys"`
	}
	// The errors of the decoder may quote what they read, which may be a private key.
	if err := json.Unmarshal(data, &set); err != nil {
		return nil, fmt.Errorf("%s: no JSON Web Key Set", name)
	}
	all := &keys{byID: map[string]key{}, onlyKey: map[jose.SignatureAlgorithm]key{}, verified: newVerifiedTokens(maxVerifiedTokens)}
	several := map[jose.SignatureAlgorithm]bool{}
	for i, raw := range set.Keys {
		var jwk jose.JSONWebKey
		if err := json.Unmarshal(raw, &jwk); err != nil {
			if errors.Is(err, jose.ErrUnsupportedKeyType) {
				continue
			}
			return nil, fmt.Errorf("%s: key %d: no JSON Web Key", name, i)
		}
		k, err := usableKey(&jwk)
		if err != nil {
			return nil, fmt.Errorf("%s: key %d: %w", name, i, err)
		}
		if k.algorithm == "" {
			continue
		}
		if jwk.KeyID != "" {
			if _, twice := all.byID[jwk.KeyID]; twice {
				return nil, fmt.Errorf("%s: key %d: its kid is that of a key before", name, i)
			}
			all.byID[jwk.KeyID] = k
		}
		if _, more := all.onlyKey[k.algorithm]; more {
			several[k.algorithm] = true
		}
		all.onlyKey[k.algorithm] = k
	}
	if len(all.onlyKey) == 0 {
		return nil, fmt.Errorf("%s: no key for %v", name, algorithms)
	}
	for algorithm := range several {
		delete(all.onlyKey, algorithm)
	}
	return all, nil
}

// usableKey returns a key with its algorithm; none: it is for something else. A key that is not public does not belong in the file.
func usableKey(jwk *jose.JSONWebKey) (key, error) {
	k := key{public: jwk.Key}
	switch public := jwk.Key.(type) {
	case []byte:
		return key{}, errors.New("a symmetric key: whoever can verify tokens by it can make them")
	case *rsa.PrivateKey, *ecdsa.PrivateKey, ed25519.PrivateKey:
		return key{}, errors.New("a private key: only public ones belong here")
	case *rsa.PublicKey:
		if public.N.BitLen() < minRSABits {
			return key{}, fmt.Errorf("an RSA key of %d bits: at least %d", public.N.BitLen(), minRSABits)
		}
		k.algorithm = jose.RS256
	case *ecdsa.PublicKey:
		if public.Curve == elliptic.P256() {
			k.algorithm = jose.ES256
		}
	case ed25519.PublicKey:
		k.algorithm = jose.EdDSA
	}
	if jwk.Use != "" && jwk.Use != "sig" || jwk.Algorithm != "" && jwk.Algorithm != string(k.algorithm) {
		return key{}, nil
	}
	return k, nil
}

// find returns the key that a token must be signed by.
func (all *keys) find(header jose.Header) (any, bool) {
	k, ok := all.byID[header.KeyID]
	if header.KeyID == "" {
		k, ok = all.onlyKey[jose.SignatureAlgorithm(header.Algorithm)]
	}
	return k.public, ok && string(k.algorithm) == header.Algorithm
}
