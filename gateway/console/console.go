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

// dist contains what Vite has built from the sources in web: dist/index.html, and its scripts and
// styles in dist/assets. Without the prefix "all:", Go would leave out files whose names begin with
// "_" or ".", and Vite may choose such names.
//
//go:embed all:dist
var dist embed.FS

// Path is the URL path of index.html. All other files are served below it.
const Path = "/console/"

// contentSecurityPolicy lets the page load script and style files from its own origin, send
// requests there with fetch, and show images from data: URLs. It blocks inline scripts and styles,
// frames around the page, and forms that the browser would submit itself.
const contentSecurityPolicy = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src data:; " +
	"frame-ancestors 'none'; base-uri 'none'; form-action 'none'"

// mediaTypes has the media type of each file extension that may occur in dist. It is used instead
// of mime.TypeByExtension, whose answers depend on the configuration of the machine.
var mediaTypes = map[string]string{
	".html": "text/html; charset=utf-8",
	".js":   "text/javascript; charset=utf-8",
	".css":  "text/css; charset=utf-8",
}

// builtFile is a file of dist with the values of its response headers.
type builtFile struct {
	content   []byte
	mediaType string
	// etag is a hash of the content, in quotes.
	etag string
	// immutable is true if the content at the file's URL never changes, so that browsers may keep
	// it.
	immutable bool
}

// handler maps URL paths, such as "/console/" and "/console/assets/index-A4ATf0He.js", to files.
type handler map[string]builtFile

// New returns a handler that serves the console. The caller must mount the handler at [Path], and
// also at Path without the trailing slash, because it redirects from there. The caller must not
// strip a prefix from the URL path of requests. New returns an error if the embedded files are not
// those of a console: if index.html is missing, or if there is a file other than .html, .js and
// .css.
func New() (http.Handler, error) {
	h := handler{}
	err := fs.WalkDir(dist, "dist", func(filePath string, entry fs.DirEntry, walkErr error) error {
		if walkErr != nil {
			return walkErr
		}
		if entry.IsDir() {
			return nil
		}

		content, err := dist.ReadFile(filePath)
		if err != nil {
			return err
		}
		mediaType, ok := mediaTypes[path.Ext(filePath)]
		if !ok {
			return fmt.Errorf("console: %s: the extension is not .html, .js or .css", filePath)
		}
		hash := sha256.Sum256(content)

		// index.html is served at /console/, and not at /console/index.html.
		relativePath := strings.TrimPrefix(filePath, "dist/")
		urlPath := Path + relativePath
		if relativePath == "index.html" {
			urlPath = Path
		}
		h[urlPath] = builtFile{
			content:   content,
			mediaType: mediaType,
			etag:      `"` + base64.RawURLEncoding.EncodeToString(hash[:]) + `"`,
			// Vite puts a hash of the content into the names of all files in assets.
			immutable: strings.HasPrefix(relativePath, "assets/"),
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	if _, ok := h[Path]; !ok {
		return nil, errors.New("console: dist has no index.html")
	}
	return h, nil
}

// ServeHTTP serves the file at the URL path to GET and HEAD requests, and redirects them from
// /console to /console/. It answers with status 404 if there is no such file, and with status 405
// to requests with other methods.
func (h handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	header := w.Header()
	header.Set("Content-Security-Policy", contentSecurityPolicy)
	header.Set("X-Content-Type-Options", "nosniff")
	header.Set("Referrer-Policy", "no-referrer")
	header.Set("Cross-Origin-Opener-Policy", "same-origin")
	header.Set("Cross-Origin-Resource-Policy", "same-origin")
	header.Set("Cache-Control", "no-cache") // immutable files replace it

	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		header.Set("Allow", "GET, HEAD")
		http.Error(w, "the console answers only GET and HEAD", http.StatusMethodNotAllowed)
		return
	}

	if r.URL.Path == strings.TrimSuffix(Path, "/") {
		// The location is relative to the URL of the request, because a proxy may serve the console
		// below a path of its own, such as /tools/console. http.Redirect would write an absolute
		// path. The status is 302, because browsers remember permanent redirects, also for another
		// program that listens on the same port later.
		header.Set("Location", strings.TrimPrefix(Path, "/"))
		w.WriteHeader(http.StatusFound)
		return
	}

	file, ok := h[r.URL.Path]
	if !ok {
		http.Error(w, "the console has no such file", http.StatusNotFound)
		return
	}
	header.Set("Content-Type", file.mediaType)
	header.Set("ETag", file.etag)
	if file.immutable {
		header.Set("Cache-Control", "public, max-age=31536000, immutable") // a year, in seconds
	}

	// ServeContent compares the ETag with If-None-Match. The empty name has no effect, because the
	// Content-Type is set. For the zero time it sends no Last-Modified.
	http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(file.content))
}
