package bucket

import (
	"fmt"
	"strings"
)

// maxNameBytes is the largest length of a name in bytes, without the prefix of the bucket.
const maxNameBytes = 512

// checkName returns [ErrName] unless the name is valid for an object.
func checkName(name string) error {
	if name == "" || len(name) > maxNameBytes {
		return fmt.Errorf("%w: %q has %d bytes", ErrName, name[:min(len(name), maxNameBytes)], len(name))
	}
	for part := range strings.SplitSeq(name, "/") {
		if !isValidPart(part) {
			return fmt.Errorf("%w: %q", ErrName, name)
		}
	}
	return nil
}

// isValidPart reports whether a part of a name is valid; see [ErrName].
func isValidPart(part string) bool {
	for i := range len(part) {
		c := part[i]
		switch {
		case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', '0' <= c && c <= '9':
		case i > 0 && (c == '.' || c == '_' || c == '-'):
		default:
			return false
		}
	}
	return part != ""
}
