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

// dist contains the built page: dist/index.html and the files in dist/assets. Without the prefix
// "all:", Go would leave out files whose names begin with "_" or ".", and the build may choose such
// names.
//
//go:embed all:dist
var dist embed.FS

// Path is the URL path of the page. The URL paths of its other files begin with Path.
const Path = "/console/"

// contentSecurityPolicy lets the page load scripts and styles from its own origin, call its own
// origin, and show images from data: URLs. No site can put the page in a frame, and the page cannot
// submit a form.
const contentSecurityPolicy = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src data:; " +
	"frame-ancestors 'none'; base-uri 'none'; form-action 'none'"

// mediaTypes lists the file extensions that the console can serve, with the media type of each. The
// function mime.TypeByExtension would depend on the configuration of the machine.
var mediaTypes = map[string]string{
	".html": "text/html; charset=utf-8",
	".js":   "text/javascript; charset=utf-8",
	".css":  "text/css; charset=utf-8",
}

// builtFile is a file of dist.
type builtFile struct {
	content   []byte
	mediaType string
	// etag is the value of the ETag header, with its quotes.
	etag string
	// hasHashInName is true if another build never uses the same name for another content.
	hasHashInName bool
}

// handler serves the files of dist. Its keys are URL paths, such as "/console/" and
// "/console/assets/index-A4ATf0He.js".
type handler map[string]builtFile

// New returns the handler of the console. The caller must mount it at [Path] and at [Path] without
// the trailing slash, and must not strip a prefix from the URL path of requests. New returns an
// error if dist has no index.html, or a file whose extension is not in mediaTypes.
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

		// The page itself has the URL path /console/, not /console/index.html.
		relativePath := strings.TrimPrefix(filePath, "dist/")
		urlPath := Path + relativePath
		if relativePath == "index.html" {
			urlPath = Path
		}
		h[urlPath] = builtFile{
			content:   content,
			mediaType: mediaType,
			etag:      `"` + base64.RawURLEncoding.EncodeToString(hash[:]) + `"`,
			// The build puts a hash of the content into the names of the files in assets.
			hasHashInName: strings.HasPrefix(relativePath, "assets/"),
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

// ServeHTTP answers GET and HEAD with the file at the URL path, or with status 404 if there is
// none. It redirects from /console to /console/, and refuses other methods with status 405.
func (h handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	header := w.Header()
	header.Set("Content-Security-Policy", contentSecurityPolicy)
	header.Set("X-Content-Type-Options", "nosniff")
	header.Set("Referrer-Policy", "no-referrer")
	header.Set("Cross-Origin-Opener-Policy", "same-origin")
	header.Set("Cross-Origin-Resource-Policy", "same-origin")
	header.Set("Cache-Control", "no-cache")

	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		header.Set("Allow", "GET, HEAD")
		http.Error(w, "the console answers only GET and HEAD", http.StatusMethodNotAllowed)
		return
	}

	if r.URL.Path == strings.TrimSuffix(Path, "/") {
		// The location is relative, because a proxy may serve the console below another path.
		// http.Redirect would make it absolute. The status is 302, because browsers remember the
		// permanent redirects of an address.
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
	if file.hasHashInName {
		const oneYear = "31536000" // seconds
		header.Set("Cache-Control", "public, max-age="+oneYear+", immutable")
	}

	// ServeContent compares the ETag with If-None-Match. It does not use the name, because the
	// Content-Type is set, and sends no Last-Modified for the zero time.
	http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(file.content))
}
