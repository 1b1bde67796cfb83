package access

import (
	"bufio"
	"bytes"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/skein-feed/skein/events"
)

// digest is the SHA-256 of a token. A token has at least 128 random bits, so a plain hash is as secure as the token. Slow hashes are
// for secrets that people choose.
type tokenHash [sha256.Size]byte

// tokens are the lines of a token file. A line is
//
//	NAME ROLE,… [user=ID] [expires=TIME] sha256:HEX
//	NAME ROLE,… [user=ID] [expires=TIME] cert:NAME
//
// or both of the last, which binds the token to the certificate. Names may repeat, so that a new token can be there
// before the old one goes. Empty lines, and those that begin with #, say nothing.
type tokens struct {
	byHash map[tokenHash]token
	// byCert are those that need no token.
	byCert map[string]token
}

type token struct {
	caller Caller
	// expires is zero if it does not.
	expires time.Time
	// cert is the name that the client certificate must have; empty means none is needed.
	cert string
}

// maxNameBytes bounds the names of callers and certificates.
const maxNameBytes = 256

func loadTokens(name string) (*tokens, error) {
	data, err := readFile(name)
	if err != nil {
		return nil, err
	}
	all := &tokens{byHash: map[tokenHash]token{}, byCert: map[string]token{}}
	lines := bufio.NewScanner(bytes.NewReader(data))
	for n := 1; lines.Scan(); n++ {
		fields := strings.Fields(lines.Text())
		if len(fields) == 0 || strings.HasPrefix(fields[0], "#") {
			continue
		}
		if err := all.addLine(fields); err != nil {
			return nil, fmt.Errorf("%s: line %d: %w", name, n, err)
		}
	}
	if err := lines.Err(); err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return all, nil
}

var errTokenLine = errors.New("want NAME ROLE,… [user=ID] [expires=TIME] and sha256:HEX or cert:NAME or both")

// add reads a line. Its errors quote no hash, and nothing that may be a token in the wrong place.
func (all *tokens) addLine(fields []string) error {
	if len(fields) < 3 {
		return errTokenLine
	}
	t := token{caller: Caller{Name: fields[0]}}
	if len(t.caller.Name) > maxNameBytes {
		return fmt.Errorf("the name is longer than %d bytes", maxNameBytes)
	}
	for name := range strings.SplitSeq(fields[1], ",") {
		role := roleOf(name)
		if role == 0 {
			return fmt.Errorf("the second field is not some of %s, with commas between them", AllRoles)
		}
		t.caller.Roles |= role
	}
	var hash *tokenHash
	given := map[string]bool{}
	for _, field := range fields[2:] {
		var err error
		i := strings.IndexAny(field, ":=")
		if i < 0 || given[field[:i]] {
			return errTokenLine
		}
		given[field[:i]] = true
		switch key, value := field[:i+1], field[i+1:]; key {
		case "user=":
			t.caller.User, err = value, events.ValidateID(value)
		case "expires=":
			t.expires, err = time.Parse(time.RFC3339, value)
		case "cert:":
			if t.cert = value; value == "" || len(value) > maxNameBytes {
				err = fmt.Errorf("a name of 1 to %d bytes", maxNameBytes)
			}
		case "sha256:":
			hash, err = parseTokenHash(value)
		default:
			err = errTokenLine
		}
		if err != nil {
			return fmt.Errorf("%s…: %w", field[:i+1], err)
		}
	}
	return all.addToken(t, hash)
}

func (all *tokens) addToken(t token, hash *tokenHash) error {
	if hash != nil {
		if _, twice := all.byHash[*hash]; twice {
			return errors.New("its hash stands in a line before")
		}
		all.byHash[*hash] = t
		return nil
	}
	if t.cert == "" {
		return errTokenLine
	}
	if _, twice := all.byCert[t.cert]; twice {
		return errors.New("its certificate stands in a line before")
	}
	all.byCert[t.cert] = t
	return nil
}

func parseTokenHash(text string) (*tokenHash, error) {
	var d tokenHash
	if n, err := hex.Decode(d[:], []byte(text[:min(len(text), 2*len(d))])); err != nil || n != len(d) || len(text) != 2*len(d) {
		return nil, errors.New("want the 64 hexadecimal digits of a SHA-256")
	}
	return &d, nil
}

// tokenPrefix makes tokens known to who looks for secrets in the wrong places.
const tokenPrefix = "skein_"

// NewToken makes a token of 256 random bits for a caller, and the line of the token file that knows it. The token is in
// neither the line nor anything else. A zero time: the token does not expire.
func NewToken(c Caller, expires time.Time) (secret, line string, err error) {
	var random [32]byte
	_, _ = rand.Read(random[:]) // which does not fail
	secret = tokenPrefix + base64.RawURLEncoding.EncodeToString(random[:])
	fields := []string{c.Name, c.Roles.String()}
	if c.User != "" {
		fields = append(fields, "user="+c.User)
	}
	if !expires.IsZero() {
		fields = append(fields, "expires="+expires.UTC().Format(time.RFC3339))
	}
	hash := sha256.Sum256([]byte(secret))
	fields = append(fields, "sha256:"+hex.EncodeToString(hash[:]))
	line = strings.Join(fields, " ")
	// What the file could not be read with is not made.
	if strings.HasPrefix(c.Name, "#") || len(strings.Fields(line)) != len(fields) {
		return "", "", errors.New("a name has 1 to 256 bytes without spaces, and does not begin with #")
	}
	all := &tokens{byHash: map[tokenHash]token{}}
	if err := all.addLine(strings.Fields(line)); err != nil {
		return "", "", err
	}
	return secret, line, nil
}
