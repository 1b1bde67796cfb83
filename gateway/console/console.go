package console

import (
	"bytes"
	"crypto/sha256"
	"embed"
	"encoding/base64"
	"fmt"
	"io/fs"
	"net/http"
	"path"
	"strings"
	"time"
)

//go:embed dist
var dist embed.FS

// Path is where the console is served.
const Path = "/console/"

// policy lets the page load its own files and call its own origin. No other site can frame it, and no form can send anything.
const contentSecurityPolicy = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data:; " +
	"frame-ancestors 'none'; base-uri 'none'; form-action 'none'"

// mediaTypes are those of the files, whatever the machine takes their names for.
var mediaTypes = map[string]string{
	".html": "text/html; charset=utf-8", ".js": "text/javascript; charset=utf-8", ".css": "text/css; charset=utf-8",
}

type consoleFile struct {
	body      []byte
	mediaType string
	cache     string
	tag       string
}

// site has the files by path.
type consoleFiles map[string]consoleFile

// New returns the handler of the console, which is mounted at [Path] and at the same path without the last slash.
func New() (http.Handler, error) {
	s := consoleFiles{}
	err := fs.WalkDir(dist, "dist", func(name string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		body, err := dist.ReadFile(name)
		if err != nil {
			return err
		}
		mediaType, ok := mediaTypes[path.Ext(name)]
		if !ok {
			return fmt.Errorf("console: %s is a file of an unknown kind", name)
		}
		hash := sha256.Sum256(body)
		f := consoleFile{body: body, mediaType: mediaType, cache: "no-cache", tag: `"` + base64.RawURLEncoding.EncodeToString(hash[:12]) + `"`}
		rest := strings.TrimPrefix(name, "dist/")
		if strings.HasPrefix(rest, "assets/") { // the name has a hash of the content
			f.cache = "public, max-age=31536000, immutable"
		}
		if rest == "index.html" {
			rest = ""
		}
		s[Path+rest] = f
		return nil
	})
	if err == nil && s[Path].body == nil {
		err = fmt.Errorf("console: no page was built")
	}
	return s, err
}

// ServeHTTP answers GET and HEAD.
func (s consoleFiles) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	h := w.Header()
	h.Set("Content-Security-Policy", contentSecurityPolicy)
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("Cross-Origin-Opener-Policy", "same-origin")
	h.Set("Cross-Origin-Resource-Policy", "same-origin")
	h.Set("Cache-Control", "no-cache")
	if r.URL.Path+"/" == Path {
		h.Set("Location", path.Base(Path)+"/") // relative: a proxy may have put it below another path
		w.WriteHeader(http.StatusFound)
		return
	}
	f, ok := s[r.URL.Path]
	if !ok {
		http.Error(w, "the console has no such file", http.StatusNotFound)
		return
	}
	h.Set("Content-Type", f.mediaType)
	h.Set("Cache-Control", f.cache)
	h.Set("ETag", f.tag)
	http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(f.body))
}
