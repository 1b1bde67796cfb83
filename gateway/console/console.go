package console

import (
	"bytes"
	"crypto/sha256"
	"embed"
	"encoding/base64"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"path"
	"strings"
	"time"
)

// The prefix all: also embeds files whose names begin with _ or a dot, as the bundler may name a part of the page.
//
//go:embed all:dist
var dist embed.FS

// Path is where the console is served.
const Path = "/console/"

// contentSecurityPolicy lets the page load its own files and call its own origin. No other site can put the page in a frame, and no form can be
// submitted.
const contentSecurityPolicy = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data:; " +
	"frame-ancestors 'none'; base-uri 'none'; form-action 'none'"

// mediaTypes has the media type of each file extension, so that they do not depend on the configuration of the machine.
var mediaTypes = map[string]string{
	".html": "text/html; charset=utf-8", ".js": "text/javascript; charset=utf-8", ".css": "text/css; charset=utf-8",
}

// consoleFile is one file as it is served.
type consoleFile struct {
	body      []byte
	mediaType string
	// cacheControl and etag are the values of the headers Cache-Control and ETag.
	cacheControl string
	etag         string
}

// consoleFiles has the files by path. It is the handler of the console.
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
		f := consoleFile{
			body:         body,
			mediaType:    mediaType,
			cacheControl: "no-cache",
			etag:         `"` + base64.RawURLEncoding.EncodeToString(hash[:12]) + `"`,
		}

		relativePath := strings.TrimPrefix(name, "dist/")
		if strings.HasPrefix(relativePath, "assets/") {
			// The name contains a hash of the content, so a file never changes under the same name.
			f.cacheControl = "public, max-age=31536000, immutable"
		}
		if relativePath == "index.html" {
			relativePath = ""
		}
		s[Path+relativePath] = f
		return nil
	})
	if err != nil {
		return nil, err
	}
	if s[Path].body == nil {
		return nil, errors.New("console: no page was built")
	}
	return s, nil
}

// ServeHTTP answers GET and HEAD with the file at the path, and refuses other methods.
func (s consoleFiles) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	h := w.Header()
	h.Set("Content-Security-Policy", contentSecurityPolicy)
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("Cross-Origin-Opener-Policy", "same-origin")
	h.Set("Cross-Origin-Resource-Policy", "same-origin")
	h.Set("Cache-Control", "no-cache")
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		h.Set("Allow", "GET, HEAD")
		http.Error(w, "the console answers only GET and HEAD", http.StatusMethodNotAllowed)
		return
	}
	if r.URL.Path+"/" == Path {
		h.Set("Location", path.Base(Path)+"/") // relative, because a proxy may have put the service below another path
		w.WriteHeader(http.StatusFound)
		return
	}
	f, ok := s[r.URL.Path]
	if !ok {
		http.Error(w, "the console has no such file", http.StatusNotFound)
		return
	}
	h.Set("Content-Type", f.mediaType)
	h.Set("Cache-Control", f.cacheControl)
	h.Set("ETag", f.etag)
	http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(f.body))
}
