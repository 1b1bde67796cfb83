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

// algorithms are the algorithms by which a JWT may be signed. All are asymmetric, so that the keys
// of this service can verify tokens, but not make them.
var algorithms = []jose.SignatureAlgorithm{jose.RS256, jose.ES256, jose.EdDSA}

// minRSABits is the minimum length of an RSA key. Shorter keys are considered unsafe, and every
// issuer supports this length.
const minRSABits = 2048

// keySet has the public keys of an issuer.
type keySet struct {
	// byID has the keys by their key id.
	byID map[string]key
	// onlyKey has the keys for tokens without a key id: for each algorithm that has exactly one
	// key, that key.
	onlyKey map[jose.SignatureAlgorithm]key
	// verified has tokens that these keys have verified. It is dropped together with the keys.
	verified *verifiedTokens
}

// key is a public key, and the only algorithm for which it is used.
type key struct {
	algorithm jose.SignatureAlgorithm
	public    any // *rsa.PublicKey, *ecdsa.PublicKey or ed25519.PublicKey
}

// loadKeys loads a JSON Web Key Set (RFC 7517). It skips keys of unknown types and keys for other
// uses than signatures. It fails if no key is left, or if the file has a key that does not belong
// there, such as a private one.
func loadKeys(name string) (*keySet, error) {
	data, err := readFile(name)
	if err != nil {
		return nil, err
	}
	var set struct {
		Keys []json.RawMessage `json:"keys"`
	}
	// The errors of the decoder are not returned, here and below, because they may quote what the
	// decoder has read, which may be a private key.
	if err := json.Unmarshal(data, &set); err != nil {
		return nil, fmt.Errorf("%s: no JSON Web Key Set", name)
	}

	s := &keySet{
		byID:     map[string]key{},
		onlyKey:  map[jose.SignatureAlgorithm]key{},
		verified: newVerifiedTokens(maxVerifiedTokens),
	}
	hasSeveralKeys := map[jose.SignatureAlgorithm]bool{}
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
			continue // the key is for another use
		}

		if jwk.KeyID != "" {
			if _, isDuplicate := s.byID[jwk.KeyID]; isDuplicate {
				return nil, fmt.Errorf("%s: key %d: its kid is that of a key before", name, i)
			}
			s.byID[jwk.KeyID] = k
		}
		if _, hasOther := s.onlyKey[k.algorithm]; hasOther {
			hasSeveralKeys[k.algorithm] = true
		}
		s.onlyKey[k.algorithm] = k
	}

	if len(s.onlyKey) == 0 {
		return nil, fmt.Errorf("%s: no key for %v", name, algorithms)
	}
	for algorithm := range hasSeveralKeys {
		delete(s.onlyKey, algorithm)
	}
	return s, nil
}

// usableKey returns a key of the file with its algorithm. The algorithm is empty if the key is for
// another algorithm or another use. usableKey fails for a key that is not public, and for an RSA
// key that is too short.
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

	isForOtherUse := jwk.Use != "" && jwk.Use != "sig"
	isForOtherAlgorithm := jwk.Algorithm != "" && jwk.Algorithm != string(k.algorithm)
	if isForOtherUse || isForOtherAlgorithm {
		return key{}, nil
	}
	return k, nil
}

// find returns the public key that must verify a token with this header, or false if there is none.
func (s *keySet) find(header jose.Header) (public any, ok bool) {
	k, ok := s.byID[header.KeyID]
	if header.KeyID == "" {
		k, ok = s.onlyKey[jose.SignatureAlgorithm(header.Algorithm)]
	}
	// The token must not choose another algorithm for the key than the file does.
	isItsAlgorithm := string(k.algorithm) == header.Algorithm
	return k.public, ok && isItsAlgorithm
}
