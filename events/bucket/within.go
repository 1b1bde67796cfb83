package bucket

import (
	"fmt"
	"net/url"
	"path/filepath"
	"strings"
)

// Within returns a bucket that is a part of another one. Its objects are those of b whose names
// begin with name and a slash; their names in the part do not have that prefix. It fails if b is
// not a bucket of this package.
func Within(b Bucket, name string) (Bucket, error) {
	if err := checkName(name); err != nil {
		return nil, err
	}
	switch b := b.(type) {
	case *dir:
		return NewDir(filepath.Join(b.path, filepath.FromSlash(name)))
	case *s3:
		part := *b
		part.prefix += name + "/"
		u, err := url.Parse(b.address)
		if err != nil {
			return nil, fmt.Errorf("bucket: %w", err)
		}
		u.Path = "/" + strings.TrimSuffix(part.prefix, "/")
		part.address = u.String()
		return &part, nil
	}
	return nil, fmt.Errorf("bucket: %s cannot be divided", b)
}
