package console_test

import (
	"bytes"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/skein-feed/skein/gateway/console"
)

// newConsole returns the handler of the console.
func newConsole(t *testing.T) http.Handler {
	t.Helper()
	h, err := console.New()
	if err != nil {
		t.Fatal(err)
	}
	return h
}

// get sends a GET request. headers are names and values, in turn.
func get(t *testing.T, h http.Handler, path string, headers ...string) *httptest.ResponseRecorder {
	t.Helper()
	req := httptest.NewRequestWithContext(t.Context(), http.MethodGet, path, nil)
	for i := 0; i+1 < len(headers); i += 2 {
		req.Header.Set(headers[i], headers[i+1])
	}
	res := httptest.NewRecorder()
	h.ServeHTTP(res, req)
	return res
}

// linkedFile matches an attribute of HTML that names a file.
var linkedFile = regexp.MustCompile(`(?:src|href)="([^"]+)"`)

// TestPageAndItsFilesAreServed checks that the page, and all files that it names, are served from
// its own origin.
func TestPageAndItsFilesAreServed(t *testing.T) {
	h := newConsole(t)
	page := get(t, h, console.Path)
	if page.Code != http.StatusOK {
		t.Fatalf("the page: got status %d, want 200", page.Code)
	}
	if got, want := page.Header().Get("Content-Type"), "text/html; charset=utf-8"; got != want {
		t.Errorf("Content-Type of the page: got %q, want %q", got, want)
	}
	if got := page.Header().Get("Cache-Control"); got != "no-cache" {
		t.Errorf("Cache-Control of the page: got %q, want no-cache", got)
	}

	// The Content-Security-Policy of the page forbids scripts and styles in the page itself.
	for _, forbidden := range []string{"<script>", "style="} {
		if strings.Contains(page.Body.String(), forbidden) {
			t.Errorf("the page contains %s, which its Content-Security-Policy forbids", forbidden)
		}
	}

	files := 0
	for _, m := range linkedFile.FindAllStringSubmatch(page.Body.String(), -1) {
		link := m[1]
		if strings.HasPrefix(link, "data:") {
			continue
		}
		// A proxy may serve the console below a path of its own, so links must be relative.
		name, isRelative := strings.CutPrefix(link, "./")
		if !isRelative {
			t.Errorf("the page names the file %s, want a path that begins with ./", link)
			continue
		}
		files++

		res := get(t, h, console.Path+name)
		if res.Code != http.StatusOK {
			t.Errorf("%s: got status %d, want 200", name, res.Code)
		}
		if got := res.Header().Get("Cache-Control"); !strings.Contains(got, "immutable") {
			t.Errorf("Cache-Control of %s: got %q, want it immutable", name, got)
		}
	}
	// Without this, the test would also pass if it did not find the links.
	if files < 2 {
		t.Errorf("files that the page names: got %d, want at least 2", files)
	}

	etag := page.Header().Get("ETag")
	if again := get(t, h, console.Path, "If-None-Match", etag); again.Code != http.StatusNotModified {
		t.Errorf("the page, if the client has ETag %q: got status %d, want 304", etag, again.Code)
	}
}

// TestEveryBuiltFileIsServed checks that the program contains each file of dist, whatever its name
// begins with.
func TestEveryBuiltFileIsServed(t *testing.T) {
	h := newConsole(t)
	built := os.DirFS("dist")
	err := fs.WalkDir(built, ".", func(name string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		want, err := fs.ReadFile(built, name)
		if err != nil {
			return err
		}

		// index.html is served at the path of the console.
		path := console.Path + strings.TrimSuffix(name, "index.html")
		res := get(t, h, path)
		if res.Code != http.StatusOK || !bytes.Equal(res.Body.Bytes(), want) {
			t.Errorf("GET %s: got status %d and %d bytes, want 200 and the %d bytes of dist/%s", path, res.Code, res.Body.Len(), len(want), name)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// TestOnlyGetAndHeadAreAnswered checks that other methods are refused, and that the refusal says
// which ones are not.
func TestOnlyGetAndHeadAreAnswered(t *testing.T) {
	h := newConsole(t)
	for method, want := range map[string]int{
		http.MethodGet:     http.StatusOK,
		http.MethodHead:    http.StatusOK,
		http.MethodPost:    http.StatusMethodNotAllowed,
		http.MethodPut:     http.StatusMethodNotAllowed,
		http.MethodDelete:  http.StatusMethodNotAllowed,
		http.MethodOptions: http.StatusMethodNotAllowed,
	} {
		t.Run(method, func(t *testing.T) {
			res := httptest.NewRecorder()
			h.ServeHTTP(res, httptest.NewRequestWithContext(t.Context(), method, console.Path, nil))
			if res.Code != want {
				t.Errorf("got status %d, want %d", res.Code, want)
			}
			if allow := res.Header().Get("Allow"); want == http.StatusMethodNotAllowed && allow != "GET, HEAD" {
				t.Errorf("got Allow %q, want GET, HEAD", allow)
			}
		})
	}
}

// TestEveryAnswerHasAStrictContentSecurityPolicy checks that every answer, also a redirect or an
// error, has a policy with all parts that are needed, and without exceptions.
func TestEveryAnswerHasAStrictContentSecurityPolicy(t *testing.T) {
	h := newConsole(t)
	for name, path := range map[string]string{
		"the page": "/console/", "a redirect": "/console", "a missing file": "/console/nothing.js",
	} {
		t.Run(name, func(t *testing.T) {
			policy := get(t, h, path).Header().Get("Content-Security-Policy")
			for _, part := range []string{
				"default-src 'none'", "script-src 'self'", "style-src 'self'", "connect-src 'self'", "img-src data:",
				"frame-ancestors 'none'", "base-uri 'none'", "form-action 'none'",
			} {
				if !strings.Contains(policy, part) {
					t.Errorf("got the policy %q, want %s in it", policy, part)
				}
			}
			for _, exception := range []string{"unsafe", "*"} {
				if strings.Contains(policy, exception) {
					t.Errorf("got the policy %q, want no %s in it", policy, exception)
				}
			}
		})
	}
}

func TestPathWithoutSlashIsRedirected(t *testing.T) {
	res := get(t, newConsole(t), "/console")
	if got := res.Header().Get("Location"); res.Code != http.StatusFound || got != "console/" {
		t.Errorf("got status %d and Location %q, want 302 and \"console/\"", res.Code, got)
	}
}

func TestUnknownPathsAreNotServed(t *testing.T) {
	h := newConsole(t)
	for _, path := range []string{
		"/console/index.html", "/console/nothing", "/console/assets/", "/console/../go.mod", "/console/web/src/main.tsx",
	} {
		t.Run(path, func(t *testing.T) {
			if res := get(t, h, path); res.Code != http.StatusNotFound {
				t.Errorf("got status %d, want 404", res.Code)
			}
		})
	}
}

// TestProblemsAreInTheRunbook checks that the runbook has a section for each problem that the page
// names.
func TestProblemsAreInTheRunbook(t *testing.T) {
	source, err := os.ReadFile("web/src/problems.ts")
	if err != nil {
		t.Fatal(err)
	}
	runbook, err := os.ReadFile("../../docs/runbook.md")
	if err != nil {
		t.Fatal(err)
	}

	// Without this limit, the test would also pass if it did not find the names.
	problems := regexp.MustCompile(`"(Skein\w+)"`).FindAllStringSubmatch(string(source), -1)
	if len(problems) < 10 {
		t.Errorf("problems in web/src/problems.ts: got %d, want at least 10", len(problems))
	}
	for _, m := range problems {
		heading := "\n### " + m[1] + "\n"
		if !bytes.Contains(runbook, []byte(heading)) {
			t.Errorf("docs/runbook.md has no section %s, want one for each problem of the page", m[1])
		}
	}
}
