package access

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

const someHash = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad" // of "abc"

func TestLoadTokensReadsEveryKindOfLine(t *testing.T) {
	file := filepath.Join(t.TempDir(), "tokens")
	mustWriteFile(t, file, `
# who may do what
web read,publish sha256:`+someHash+`
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
		t.Errorf("tokens of the file (-expected +got):\n%s", diff)
	}
}

// TestLoadTokensNamesTheLineWithoutSecrets demands that the error says what is wrong with a line,
// and does not quote a text that may be a misplaced secret.
func TestLoadTokensNamesTheLineWithoutSecrets(t *testing.T) {
	const secret = "skein_verysecret"
	good := "ok read sha256:" + someHash + "\n"
	for _, c := range []struct{ line, want string }{
		{"web", "want NAME ROLE"},
		{"web read", "want NAME ROLE"},
		{"web read user=ann", "want NAME ROLE"},
		{"web read " + secret, "want NAME ROLE"},
		{"web read token:" + secret, "want NAME ROLE"},
		{"web " + secret + " sha256:" + someHash, "second field"},
		{"web read,write sha256:" + someHash, "second field"},
		{"web read sha256:" + secret, "64 hexadecimal digits"},
		{"web read sha256:" + someHash + "00", "64 hexadecimal digits"},
		{"web read sha256:" + strings.Repeat("é", 32), "64 hexadecimal digits"},
		{"web read sha256:" + someHash, "line before"},
		{"web read user= sha256:" + strings.Repeat("22", 32), "user=…"},
		{"web read user=a user=b sha256:" + strings.Repeat("22", 32), "want NAME ROLE"},
		{"web read expires=tomorrow sha256:" + strings.Repeat("22", 32), "expires=…"},
		{"web read cert:", "cert:…"},
		{"web read cert:a\nweb read cert:a", "line before"},
		{strings.Repeat("w", 300) + " read cert:a", "longer than"},
		{strings.Repeat("x", 100_000), "token too long"},
	} {
		file := filepath.Join(t.TempDir(), "tokens")
		mustWriteFile(t, file, good+c.line)
		_, err := loadTokens(file)
		if err == nil || !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), secret) {
			t.Errorf("%.60s: got %v, expected an error with %q and without the secret", c.line, err, c.want)
		}
	}
	if _, err := loadTokens("missing"); err == nil {
		t.Error("loadTokens accepts a missing file, expected an error")
	}
}

func TestNewTokenIsReadBack(t *testing.T) {
	file := filepath.Join(t.TempDir(), "tokens")
	caller := Caller{Name: "web", Roles: Read | Offline, User: "ann"}
	expires := time.Date(2031, 1, 1, 0, 0, 0, 0, time.UTC)
	secret, line, err := NewToken(caller, expires)
	if err != nil {
		t.Fatal(err)
	}
	if strings.Contains(line, secret) || len(secret) < 40 {
		t.Errorf("the line %q has the secret, or the secret %q is short", line, secret)
	}

	mustWriteFile(t, file, line+"\n")
	loaded, err := loadTokens(file)
	if err != nil {
		t.Fatal(err)
	}
	got := loaded.byHash[sha256.Sum256([]byte(secret))]
	if got.caller != caller || !got.expires.Equal(expires) {
		t.Errorf("%s: got %+v, expected %+v until %v", line, got, caller, expires)
	}
	if again, _, _ := NewToken(caller, time.Time{}); again == secret {
		t.Error("NewToken returned the same token twice")
	}

	for _, bad := range []Caller{
		{},
		{Name: "web"},
		{Name: "a b", Roles: Read},
		{Name: "#a", Roles: Read},
		{Name: "a", Roles: Read, User: "b c"},
		{Name: "a", Roles: Read, User: strings.Repeat("u", 200)},
		{Name: strings.Repeat("n", 300), Roles: Read},
	} {
		if _, line, err := NewToken(bad, time.Time{}); err == nil {
			t.Errorf("NewToken(%+v): got the line %q, expected an error", bad, line)
		}
	}
}

// FuzzLoadTokens demands that no line of a token file makes its parser panic, and that every token
// has roles.
func FuzzLoadTokens(f *testing.F) {
	f.Add("web read,publish user=a expires=2030-01-02T03:04:05Z sha256:" + someHash)
	f.Add("a read cert:x\n# y\n\nb admin cert:z")
	f.Fuzz(func(t *testing.T, text string) {
		loaded := &tokenFile{byHash: map[tokenHash]credential{}, byCert: map[string]credential{}}
		for line := range strings.Lines(text) {
			_ = loaded.addLine(strings.Fields(line)) // a bad line must add nothing
		}
		for hash, c := range loaded.byHash {
			if c.caller.Roles == 0 || len(hex.EncodeToString(hash[:])) != 64 {
				t.Errorf("got %+v with the hash %x, expected roles and a hash of 32 bytes", c, hash)
			}
		}
	})
}
