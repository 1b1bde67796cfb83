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

func get(t *testing.T, h http.Handler, path string, header ...string) *httptest.ResponseRecorder {
	t.Helper()
	req := httptest.NewRequestWithContext(t.Context(), http.MethodGet, path, nil)
	for i := 0; i+1 < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	res := httptest.NewRecorder()
	h.ServeHTTP(res, req)
	return res
}

var asset = regexp.MustCompile(`(?:src|href)="([^"]+)"`)

// The page and all files that it names are served from its own origin.
func TestPageAndItsFilesAreServed(t *testing.T) {
	h, err := console.New()
	if err != nil {
		t.Fatal(err)
	}
	page := get(t, h, "/console/")
	if page.Code != http.StatusOK || page.Header().Get("Content-Type") != "text/html; charset=utf-8" {
		t.Fatalf("%d, %v", page.Code, page.Header())
	}
	if got := page.Header().Get("Cache-Control"); got != "no-cache" {
		t.Errorf("the page may be kept: %q", got)
	}
	files := 0
	for _, m := range asset.FindAllStringSubmatch(page.Body.String(), -1) {
		name, relative := strings.CutPrefix(m[1], "./")
		if strings.HasPrefix(m[1], "data:") {
			continue
		}
		if !relative {
			t.Errorf("the page names %s, which is not beside it", m[1])
			continue
		}
		files++
		res := get(t, h, console.Path+name)
		if res.Code != http.StatusOK || !strings.Contains(res.Header().Get("Cache-Control"), "immutable") {
			t.Errorf("%s: %d, %v", name, res.Code, res.Header())
		}
	}
	if files < 2 {
		t.Errorf("the page names only %d files", files)
	}
	if strings.Contains(page.Body.String(), "<script>") || strings.Contains(page.Body.String(), "style=") {
		t.Error("the page has a script or style of its own, which the policy forbids")
	}
	if again := get(t, h, "/console/", "If-None-Match", page.Header().Get("ETag")); again.Code != http.StatusNotModified {
		t.Errorf("the same page is sent again: %d", again.Code)
	}
}

// TestEveryBuiltFileIsServed checks that the program contains each file of dist, whatever its name
// begins with.
func TestEveryBuiltFileIsServed(t *testing.T) {
	h, err := console.New()
	if err != nil {
		t.Fatal(err)
	}
	built := os.DirFS("dist")
	err = fs.WalkDir(built, ".", func(name string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		want, err := fs.ReadFile(built, name)
		if err != nil {
			return err
		}
		path := console.Path + strings.TrimSuffix(name, "index.html")
		if res := get(t, h, path); res.Code != http.StatusOK || !bytes.Equal(res.Body.Bytes(), want) {
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
	h, err := console.New()
	if err != nil {
		t.Fatal(err)
	}
	for method, want := range map[string]int{
		http.MethodGet: http.StatusOK, http.MethodHead: http.StatusOK, http.MethodPost: http.StatusMethodNotAllowed,
		http.MethodPut: http.StatusMethodNotAllowed, http.MethodDelete: http.StatusMethodNotAllowed, http.MethodOptions: http.StatusMethodNotAllowed,
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

func TestContentSecurityPolicy(t *testing.T) {
	h, err := console.New()
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{"/console/", "/console", "/console/nothing.js"} {
		policy := get(t, h, path).Header().Get("Content-Security-Policy")
		for _, part := range []string{
			"default-src 'none'", "script-src 'self'", "style-src 'self'", "connect-src 'self'", "img-src data:",
			"frame-ancestors 'none'", "base-uri 'none'", "form-action 'none'",
		} {
			if !strings.Contains(policy, part) {
				t.Errorf("%s: no %s in %q", path, part, policy)
			}
		}
		if strings.Contains(policy, "unsafe") || strings.Contains(policy, "*") {
			t.Errorf("%s: %q", path, policy)
		}
	}
}

func TestUnknownPathsAreNotServed(t *testing.T) {
	h, err := console.New()
	if err != nil {
		t.Fatal(err)
	}
	if res := get(t, h, "/console"); res.Code != http.StatusFound || res.Header().Get("Location") != "console/" {
		t.Errorf("%d to %q", res.Code, res.Header().Get("Location"))
	}
	for _, path := range []string{"/console/index.html", "/console/nothing", "/console/assets/", "/console/../go.mod", "/console/web/src/main.tsx"} {
		if res := get(t, h, path); res.Code != http.StatusNotFound {
			t.Errorf("%s: %d", path, res.Code)
		}
	}
}

// The runbook has a section for each problem that the page names.
func TestProblemsAreInTheRunbook(t *testing.T) {
	source, err := os.ReadFile("web/src/problems.ts")
	if err != nil {
		t.Fatal(err)
	}
	runbook, err := os.ReadFile("../../docs/runbook.md")
	if err != nil {
		t.Fatal(err)
	}
	names := regexp.MustCompile(`"(Skein\w+)"`).FindAllSubmatch(source, -1)
	if len(names) < 10 {
		t.Errorf("only %d problems", len(names))
	}
	for _, name := range names {
		if !bytes.Contains(runbook, []byte("\n### "+string(name[1])+"\n")) {
			t.Errorf("docs/runbook.md has no part %s", name[1])
		}
	}
}
