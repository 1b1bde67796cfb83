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
// other pages that show this one in a frame, and forms that the browser submits without a script.
const contentSecurityPolicy = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src data:; " +
	"frame-ancestors 'none'; base-uri 'none'; form-action 'none'"

// mediaTypes has the media type of each file extension. Files with other extensions must not be in
// dist. The answers of mime.TypeByExtension would depend on the configuration of the machine.
var mediaTypes = map[string]string{
	".html": "text/html; charset=utf-8",
	".js":   "text/javascript; charset=utf-8",
	".css":  "text/css; charset=utf-8",
}

// builtFile is a file of dist and what its response headers need.
type builtFile struct {
	content   []byte
	mediaType string
	// etag is a hash of the content, in quotes.
	etag string
	// immutable is true if the file's URL has the same content in every version of the program, so
	// that browsers may use a copy without asking again.
	immutable bool
}

// handler maps URL paths, such as "/console/" and "/console/assets/index-A4ATf0He.js", to files.
type handler map[string]builtFile

// New returns a handler that serves the console. The caller must mount the handler at [Path], and
// also at Path without the trailing slash, from where the handler redirects to Path. The caller must
// not use http.StripPrefix, because the handler looks up whole paths. New returns an error if dist
// has no index.html, or has a file whose extension is not .html, .js or .css.
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
			// All files in assets are built by Vite, which puts a hash of the content into the name.
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

// ServeHTTP answers GET and HEAD requests with the file at the URL path, or with status 404 if there
// is none. It redirects requests for /console to /console/. Requests with other methods get status
// 405. Conditional requests and ranges are answered as by [http.ServeContent].
func (h handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	header := w.Header()
	header.Set("Content-Security-Policy", contentSecurityPolicy)
	header.Set("X-Content-Type-Options", "nosniff")
	header.Set("Referrer-Policy", "no-referrer")
	header.Set("Cross-Origin-Opener-Policy", "same-origin")
	header.Set("Cross-Origin-Resource-Policy", "same-origin")
	header.Set("Cache-Control", "no-cache") // immutable files get another value below

	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		header.Set("Allow", "GET, HEAD")
		http.Error(w, "the console answers only GET and HEAD", http.StatusMethodNotAllowed)
		return
	}

	if r.URL.Path == strings.TrimSuffix(Path, "/") {
		// The location is relative to the URL of the request, and has no more than the last element
		// of Path: a proxy may add a prefix to all URLs of the service, and serve the console as
		// /tools/console/. http.Redirect would write an absolute path. The status is 302, because
		// browsers remember permanent redirects, and would apply them to any other program that
		// uses the same address later.
		header.Set("Location", path.Base(Path)+"/")
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

	// ServeContent compares the ETag with If-None-Match. From the name it would only take a
	// Content-Type, which is set already. For the zero time it sends no Last-Modified, because
	// embedded files have no times.
	http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(file.content))
}
