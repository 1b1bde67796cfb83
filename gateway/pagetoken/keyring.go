package pagetoken

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"strings"

	"github.com/skein-feed/skein/events"
)

// KeyRing signs page tokens. The first key signs, every key verifies. All processes behind one address share one
// ring, so that any of them serves any page. To change keys without a refused token, append the new key everywhere,
// then move it to the front everywhere, then drop the old one.
type KeyRing struct{ keys []ringKey }

type ringKey struct {
	id     string
	secret []byte
}

// Limits of a key ring.
const (
	maxKeys        = 16
	maxKeyIDBytes  = 16
	minSecretBytes = 16
	macBytes       = 16
)

// ErrKeyRing is returned by [ParseKeyRing].
var ErrKeyRing = errors.New("gateway: malformed key ring")

// DefaultKeyRing returns the ring with one key, derived from the id of the log, so that the processes that read one
// log agree without configuration. The id of a log is no secret: these signatures tell damaged and foreign tokens, not
// forged ones. A forged token lets its maker enter a list at a position of its choice, which [ParseKeyRing] rules out.
func DefaultKeyRing(log events.LogID) KeyRing {
	mac := hmac.New(sha256.New, log[:])
	mac.Write([]byte("skein page tokens"))
	return KeyRing{keys: []ringKey{{id: "log", secret: mac.Sum(nil)}}}
}

// ParseKeyRing reads "id:base64,…": 1 to 16 keys, each with an id of 1 to 16 letters, digits, "-" or "_", and a secret
// of at least 16 bytes in standard or URL base64. It returns [ErrKeyRing], which never quotes a secret.
func ParseKeyRing(text string) (KeyRing, error) {
	var ring KeyRing
	for i, entry := range strings.Split(text, ",") {
		id, encoded, ok := strings.Cut(strings.TrimSpace(entry), ":")
		if !ok || !validKeyID(id) {
			return KeyRing{}, fmt.Errorf("%w: key %d: want id:base64, the id 1 to %d letters, digits, - or _",
				ErrKeyRing, i, maxKeyIDBytes)
		}
		secret, err := decodeSecret(encoded)
		if err != nil || len(secret) < minSecretBytes {
			return KeyRing{}, fmt.Errorf("%w: key %d (%s): want at least %d bytes of base64",
				ErrKeyRing, i, id, minSecretBytes)
		}
		if _, dup := ring.find(id); dup {
			return KeyRing{}, fmt.Errorf("%w: key %d: the id %s occurs twice", ErrKeyRing, i, id)
		}
		ring.keys = append(ring.keys, ringKey{id: id, secret: secret})
	}
	if len(ring.keys) > maxKeys {
		return KeyRing{}, fmt.Errorf("%w: %d keys: at most %d", ErrKeyRing, len(ring.keys), maxKeys)
	}
	return ring, nil
}

// IsZero reports whether the ring has no key.
func (r KeyRing) IsZero() bool { return len(r.keys) == 0 }

// DeriveSecrets returns a secret for a purpose from each key, in the order of the ring. They reveal nothing of the keys, and no token has
// the MAC of a purpose: tokens begin with [Version].
func (r KeyRing) DeriveSecrets(purpose string) [][]byte {
	secrets := make([][]byte, len(r.keys))
	for i, k := range r.keys {
		mac := hmac.New(sha256.New, k.secret)
		mac.Write([]byte("skein derived secret: " + purpose))
		secrets[i] = mac.Sum(nil)
	}
	return secrets
}

func (r KeyRing) find(id string) (ringKey, bool) {
	for _, k := range r.keys {
		if k.id == id {
			return k, true
		}
	}
	return ringKey{}, false
}

// appendMAC appends the truncated HMAC-SHA256 of a message.
func (k ringKey) appendMAC(dst, message []byte) []byte {
	mac := hmac.New(sha256.New, k.secret)
	mac.Write(message)
	var sum [sha256.Size]byte
	return append(dst, mac.Sum(sum[:0])[:macBytes]...)
}

func validKeyID(id string) bool {
	for _, c := range []byte(id) {
		switch {
		case c >= 'a' && c <= 'z', c >= 'A' && c <= 'Z', c >= '0' && c <= '9', c == '-', c == '_':
		default:
			return false
		}
	}
	return id != "" && len(id) <= maxKeyIDBytes
}

func decodeSecret(s string) ([]byte, error) {
	s = strings.TrimRight(s, "=")
	if b, err := base64.RawStdEncoding.DecodeString(s); err == nil {
		return b, nil
	}
	return base64.RawURLEncoding.DecodeString(s)
}
