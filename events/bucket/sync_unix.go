//go:build !windows

package bucket

import (
	"errors"
	"fmt"
	"os"
)

// syncDir makes durable which files a directory has.
func syncDir(path string) error {
	d, err := os.Open(path)
	if err != nil {
		return fmt.Errorf("bucket: %w", err)
	}
	return errors.Join(d.Sync(), d.Close())
}
