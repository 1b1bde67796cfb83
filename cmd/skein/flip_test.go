package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
)

// flipBit flips a bit in the nth occurrence of a text in a file of messages below a directory, and
// saves the original file at savePath.
func flipBit(dir, text string, n int, savePath string) error {
	paths, err := blockFiles(dir)
	if err != nil {
		return err
	}

	for _, path := range paths {
		content, err := os.ReadFile(path)
		if err != nil {
			return err
		}

		// Find the nth occurrence, or count down the occurrences in this file. The offset is that
		// of the second byte of the last occurrence.
		offset := 0
		for n > 0 {
			next := bytes.Index(content[offset:], []byte(text))
			if next < 0 {
				break
			}
			offset += next + 1
			n--
		}
		if n > 0 {
			continue
		}

		saved, err := json.Marshal(savedFile{path, content})
		if err != nil {
			return err
		}
		content[offset] ^= 1
		return errors.Join(os.WriteFile(savePath, saved, 0o600), os.WriteFile(path, content, 0o600))
	}
	return fmt.Errorf("the text %q does not occur often enough in %v", text, paths)
}

// blockFiles returns the files below a directory in which a NATS server stores the messages of the
// log.
func blockFiles(dir string) ([]string, error) {
	return filepath.Glob(filepath.Join(dir, "jetstream", "*", "streams", "SKEIN", "msgs", "*.blk"))
}

// restoreFlipped restores the original file, as the runbook says: without the index of the damaged
// file.
func restoreFlipped(savePath string) error {
	data, err := os.ReadFile(savePath)
	if err != nil {
		return err
	}
	var saved savedFile
	if err := json.Unmarshal(data, &saved); err != nil {
		return err
	}
	if err := os.WriteFile(saved.Path, saved.Content, 0o600); err != nil {
		return err
	}

	// A server that was killed has written no index.
	err = os.Remove(filepath.Join(filepath.Dir(saved.Path), "index.db"))
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	return err
}

// savedFile is an original file and its path.
type savedFile struct {
	Path    string
	Content []byte
}
