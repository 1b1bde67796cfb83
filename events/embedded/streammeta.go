package embedded

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/minio/highwayhash"

	"github.com/skein-feed/skein/events/atomicfile"
)

const (
	// streamMetaFile has the configuration of a stream, and streamSumFile the checksum of that file.
	streamMetaFile = "meta.inf"
	streamSumFile  = "meta.sum"
)

// repairStreamMeta completes an update of the stream's configuration that a kill or a power failure
// has interrupted. The server replaces first the file of the configuration and then that of the
// checksum. If it ends in between, it finds that they do not match at its next start, and goes on
// without the stream, as if there were no messages.
//
// Such a configuration is whole, because the server renames a file that it has written and synced.
// What shows the interruption is that it is newer than the checksum. If it is not, it was damaged
// later, and repairStreamMeta leaves it to the server, which refuses it.
func repairStreamMeta(o Options, dir string) error {
	paths, err := findStreamFiles(dir, o.Stream, streamMetaFile)
	if err != nil {
		return err
	}
	for _, path := range paths {
		config, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		sum, err := streamMetaSum(o.Stream, config)
		if err != nil {
			return err
		}

		sumPath := filepath.Join(filepath.Dir(path), streamSumFile)
		isInterrupted, err := isUpdateInterrupted(path, sumPath, sum)
		if err != nil {
			return err
		}
		if !isInterrupted || !json.Valid(config) {
			continue
		}
		if err := atomicfile.Write(sumPath, []byte(sum)); err != nil {
			return fmt.Errorf("complete the update of %s: %w", path, err)
		}
		o.Logger.Warn("log: completed an update of the stream's configuration that was interrupted", "file", path)
	}
	return nil
}

// findStreamFiles returns the paths of the files and directories of a stream that match a pattern,
// which may have a slash.
func findStreamFiles(dir, stream, pattern string) ([]string, error) {
	// The data directory is not part of the pattern, because its path may have characters that have
	// a meaning there, such as brackets.
	paths, err := fs.Glob(os.DirFS(dir), "jetstream/*/streams/"+stream+"/"+pattern)
	for i, found := range paths {
		paths[i] = filepath.Join(dir, filepath.FromSlash(found))
	}
	return paths, err
}

// streamMetaSum returns the checksum of the configuration of a stream, as the server writes it.
func streamMetaSum(stream string, config []byte) (string, error) {
	key := sha256.Sum256([]byte(stream))
	checksum, err := highwayhash.New64(key[:])
	if err != nil {
		return "", err
	}
	_, _ = checksum.Write(config)
	return hex.EncodeToString(checksum.Sum(nil)), nil
}

// isUpdateInterrupted reports whether the configuration in the file at path was written, and its
// checksum, which is sum, was not.
func isUpdateInterrupted(path, sumPath, sum string) (bool, error) {
	old, err := os.ReadFile(sumPath)
	if errors.Is(err, os.ErrNotExist) {
		return true, nil // the stream was being created
	}
	if err != nil || string(old) == sum {
		return false, err
	}

	info, err := os.Stat(path)
	if err != nil {
		return false, err
	}
	sumInfo, err := os.Stat(sumPath)
	if err != nil {
		return false, err
	}
	return info.ModTime().After(sumInfo.ModTime()), nil
}
