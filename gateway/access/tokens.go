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

// tokenHash is the SHA-256 of a token. Tokens are random and too long to be guessed, so a fast hash
// is enough. Slow hashes are for secrets that people choose.
type tokenHash [sha256.Size]byte

// tokenFile has the lines of a token file. A line has one of these forms:
//
//	NAME ROLE,… [user=ID] [expires=TIME] sha256:HEX
//	NAME ROLE,… [user=ID] [expires=TIME] cert:NAME
//	NAME ROLE,… [user=ID] [expires=TIME] cert:NAME sha256:HEX
//
// The last form binds the token to the certificate. The same name may be on several lines, so that
// a new token can be added before the old one is removed. Empty lines and lines that begin with #
// are ignored.
type tokenFile struct {
	// byHash has the lines with sha256.
	byHash map[tokenHash]credential
	// byCert has the lines without sha256, by the name of the certificate. Their callers need no
	// token.
	byCert map[string]credential
}

// credential is what is known about a token or, for a line without sha256, about a certificate.
type credential struct {
	// caller is the caller whom the credential identifies.
	caller Caller
	// expires is the time from which the credential is refused. It is zero if the credential does
	// not expire.
	expires time.Time
	// cert is the name that the client certificate must have. It is empty if no certificate is
	// needed.
	cert string
}

// maxNameBytes limits the length of the name of a caller or certificate.
const maxNameBytes = 256

// loadTokens loads a token file.
func loadTokens(name string) (*tokenFile, error) {
	data, err := readFile(name)
	if err != nil {
		return nil, err
	}

	f := &tokenFile{byHash: map[tokenHash]credential{}, byCert: map[string]credential{}}
	lines := bufio.NewScanner(bytes.NewReader(data))
	for n := 1; lines.Scan(); n++ {
		fields := strings.Fields(lines.Text())
		if len(fields) == 0 || strings.HasPrefix(fields[0], "#") {
			continue
		}
		if err := f.addLine(fields); err != nil {
			return nil, fmt.Errorf("%s: line %d: %w", name, n, err)
		}
	}
	if err := lines.Err(); err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return f, nil
}

var errTokenLine = errors.New("want NAME ROLE,… [user=ID] [expires=TIME] and sha256:HEX or cert:NAME or both")

// addLine parses the fields of a line, and adds its credential. Its errors quote neither hashes nor
// anything that may be a token in the wrong place.
func (f *tokenFile) addLine(fields []string) error {
	if len(fields) < 3 {
		return errTokenLine
	}
	c := credential{caller: Caller{Name: fields[0]}}
	if len(c.caller.Name) > maxNameBytes {
		return fmt.Errorf("the name is longer than %d bytes", maxNameBytes)
	}
	for name := range strings.SplitSeq(fields[1], ",") {
		role := roleOf(name)
		if role == 0 {
			return fmt.Errorf("the second field is not some of %s, with commas between them", AllRoles)
		}
		c.caller.Roles |= role
	}

	// The other fields have a key, which ends with ":" or "=", and a value. A key occurs once.
	var hash *tokenHash
	seenKeys := map[string]bool{}
	for _, field := range fields[2:] {
		i := strings.IndexAny(field, ":=")
		if i < 0 || seenKeys[field[:i]] {
			return errTokenLine
		}
		seenKeys[field[:i]] = true

		key := field[:i+1]
		value := field[i+1:]
		var err error
		switch key {
		case "user=":
			c.caller.User = value
			err = events.ValidateID(value)
		case "expires=":
			c.expires, err = time.Parse(time.RFC3339, value)
		case "cert:":
			c.cert = value
			if value == "" || len(value) > maxNameBytes {
				err = fmt.Errorf("a name of 1 to %d bytes", maxNameBytes)
			}
		case "sha256:":
			hash, err = parseTokenHash(value)
		default:
			err = errTokenLine
		}
		if err != nil {
			return fmt.Errorf("%s…: %w", key, err)
		}
	}
	return f.addCredential(c, hash)
}

// addCredential adds a credential under the hash of its token or, if hash is nil, under the name of
// its certificate.
func (f *tokenFile) addCredential(c credential, hash *tokenHash) error {
	if hash != nil {
		if _, isDuplicate := f.byHash[*hash]; isDuplicate {
			return errors.New("its hash stands in a line before")
		}
		f.byHash[*hash] = c
		return nil
	}
	if c.cert == "" {
		return errTokenLine
	}
	if _, isDuplicate := f.byCert[c.cert]; isDuplicate {
		return errors.New("its certificate stands in a line before")
	}
	f.byCert[c.cert] = c
	return nil
}

var errTokenHash = errors.New("want the 64 hexadecimal digits of a SHA-256")

// parseTokenHash parses the hexadecimal digits of a hash.
func parseTokenHash(text string) (*tokenHash, error) {
	var hash tokenHash
	if len(text) != 2*len(hash) {
		return nil, errTokenHash
	}
	if _, err := hex.Decode(hash[:], []byte(text)); err != nil {
		return nil, errTokenHash // not err, which quotes a character of what may be a token
	}
	return &hash, nil
}

// tokenPrefix lets scanners for leaked secrets recognize tokens.
const tokenPrefix = "skein_"

// NewToken makes a token of 256 random bits for a caller. It returns the token and its line for the
// token file, which has only the hash of the token. A zero expires means that the token does not
// expire.
func NewToken(c Caller, expires time.Time) (secret, line string, err error) {
	var random [32]byte
	_, _ = rand.Read(random[:]) // never fails
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

	// Check that a token file with the line can be loaded.
	if strings.HasPrefix(c.Name, "#") || len(strings.Fields(line)) != len(fields) {
		return "", "", errors.New("a name has 1 to 256 bytes without spaces, and does not begin with #")
	}
	f := &tokenFile{byHash: map[tokenHash]credential{}}
	if err := f.addLine(strings.Fields(line)); err != nil {
		return "", "", err
	}
	return secret, line, nil
}
