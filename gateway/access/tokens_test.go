package access

import (
	"bytes"
	"crypto/sha256"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// abcHash is the SHA-256 of "abc".
const abcHash = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"

func TestLoadTokensReadsEveryKindOfLine(t *testing.T) {
	file := filepath.Join(t.TempDir(), "tokens")
	mustWriteFile(t, file, `
# who may do what
web read,publish sha256:`+abcHash+`
ann  read  user=ann	expires=2030-01-02T03:04:05Z sha256:`+strings.Repeat("0A", 32)+`

backup offline cert:backup.internal
ops admin cert:ops sha256:`+strings.Repeat("11", 32)+`
`)
	got, err := loadTokens(file)
	if err != nil {
		t.Fatal(err)
	}

	want := &tokenFile{
		byHash: map[tokenHash]credential{
			sha256.Sum256([]byte("abc")): {caller: Caller{Name: "web", Roles: Read | Publish}},
			tokenHash(bytes.Repeat([]byte{0x0a}, 32)): {
				caller: Caller{Name: "ann", Roles: Read, User: "ann"}, expires: time.Date(2030, 1, 2, 3, 4, 5, 0, time.UTC),
			},
			tokenHash(bytes.Repeat([]byte{0x11}, 32)): {caller: Caller{Name: "ops", Roles: Admin}, cert: "ops"},
		},
		byCert: map[string]credential{
			"backup.internal": {caller: Caller{Name: "backup", Roles: Offline}, cert: "backup.internal"},
		},
	}
	if diff := cmp.Diff(want, got, cmp.AllowUnexported(tokenFile{}, credential{})); diff != "" {
		t.Errorf("tokens of the file (-want +got):\n%s", diff)
	}
}

// TestLoadTokensNamesTheLineWithoutSecrets checks that the error says what is wrong with a line,
// and does not quote a text that may be a misplaced secret.
func TestLoadTokensNamesTheLineWithoutSecrets(t *testing.T) {
	const secret = "skein_verysecret"
	const firstLine = "ok read sha256:" + abcHash + "\n"
	otherHash := strings.Repeat("22", 32)
	const wantFields = "want NAME ROLE"
	const wantDigits = "64 hexadecimal digits"

	for name, c := range map[string]struct{ line, want string }{
		"a name alone":                 {"web", wantFields},
		"no token":                     {"web read", wantFields},
		"a user but no token":          {"web read user=ann", wantFields},
		"a secret without a prefix":    {"web read " + secret, wantFields},
		"a secret with a wrong prefix": {"web read token:" + secret, wantFields},
		"a secret instead of roles":    {"web " + secret + " sha256:" + abcHash, "second field"},
		"an unknown role":              {"web read,write sha256:" + abcHash, "second field"},
		"a secret instead of its hash": {"web read sha256:" + secret, wantDigits},
		"a hash that is too long":      {"web read sha256:" + abcHash + "00", wantDigits},
		"64 bytes that are no digits":  {"web read sha256:" + strings.Repeat("é", 32), wantDigits},
		"the hash of another line":     {"web read sha256:" + abcHash, "line before"},
		"an empty user":                {"web read user= sha256:" + otherHash, "user=…"},
		"two users":                    {"web read user=a user=b sha256:" + otherHash, wantFields},
		"an expiry that is no time":    {"web read expires=tomorrow sha256:" + otherHash, "expires=…"},
		"an empty certificate":         {"web read cert:", "cert:…"},
		"a certificate twice":          {"web read cert:a\nweb read cert:a", "line before"},
		"a name that is too long":      {strings.Repeat("w", 300) + " read cert:a", "longer than"},
		"a line that is too long":      {strings.Repeat("x", 100_000), "token too long"},
	} {
		t.Run(name, func(t *testing.T) {
			file := filepath.Join(t.TempDir(), "tokens")
			mustWriteFile(t, file, firstLine+c.line)
			_, err := loadTokens(file)
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Fatalf("loadTokens of %.60q: got the error %v, want %q in it", c.line, err, c.want)
			}
			if strings.Contains(err.Error(), secret) {
				t.Errorf("loadTokens of %.60q: got the error %v, want one without the secret", c.line, err)
			}
		})
	}
	t.Run("a missing file", func(t *testing.T) {
		if _, err := loadTokens("missing"); err == nil {
			t.Error("loadTokens: got no error, want one")
		}
	})
}

func TestNewTokenIsReadBack(t *testing.T) {
	caller := Caller{Name: "web", Roles: Read | Offline, User: "ann"}
	expires := time.Date(2031, 1, 1, 0, 0, 0, 0, time.UTC)
	secret, line := mustNewToken(t, caller, expires)
	if strings.Contains(line, secret) {
		t.Errorf("got the line %q, want one without the secret %q", line, secret)
	}
	if len(secret) < 40 {
		t.Errorf("got the secret %q of %d characters, want at least 40", secret, len(secret))
	}

	file := filepath.Join(t.TempDir(), "tokens")
	mustWriteFile(t, file, line+"\n")
	loaded, err := loadTokens(file)
	if err != nil {
		t.Fatal(err)
	}
	got := loaded.byHash[sha256.Sum256([]byte(secret))]
	if got.caller != caller || !got.expires.Equal(expires) {
		t.Errorf("token of the line %s: got %+v, want %+v until %v", line, got, caller, expires)
	}

	secondSecret, _ := mustNewToken(t, caller, time.Time{})
	if secondSecret == secret {
		t.Errorf("second token: got %q again, want another", secondSecret)
	}
}

func TestNewTokenRefusesInvalidCallers(t *testing.T) {
	for name, caller := range map[string]Caller{
		"the zero caller":         {},
		"no roles":                {Name: "web"},
		"a space in the name":     {Name: "a b", Roles: Read},
		"the sign of a comment":   {Name: "#a", Roles: Read},
		"a space in the user":     {Name: "a", Roles: Read, User: "b c"},
		"a user that is too long": {Name: "a", Roles: Read, User: strings.Repeat("u", 200)},
		"a name that is too long": {Name: strings.Repeat("n", 300), Roles: Read},
	} {
		t.Run(name, func(t *testing.T) {
			if _, line, err := NewToken(caller, time.Time{}); err == nil {
				t.Errorf("NewToken(%+v): got the line %q, want an error", caller, line)
			}
		})
	}
}

// FuzzLoadTokens checks that no line of a token file makes its parser panic, and that every token
// has roles.
func FuzzLoadTokens(f *testing.F) {
	f.Add("web read,publish user=a expires=2030-01-02T03:04:05Z sha256:" + abcHash)
	f.Add("a read cert:x\n# y\n\nb admin cert:z")
	f.Fuzz(func(t *testing.T, text string) {
		loaded := &tokenFile{byHash: map[tokenHash]credential{}, byCert: map[string]credential{}}
		for line := range strings.Lines(text) {
			_ = loaded.addLine(strings.Fields(line)) // a bad line must add nothing
		}

		for hash, c := range loaded.byHash {
			if c.caller.Roles == 0 {
				t.Errorf("token with the hash %x: got %+v, want roles", hash, c)
			}
		}
		for cert, c := range loaded.byCert {
			if c.caller.Roles == 0 {
				t.Errorf("certificate %q: got %+v, want roles", cert, c)
			}
		}
	})
}
