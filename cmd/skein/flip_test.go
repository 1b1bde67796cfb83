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
	all, err := blockFiles(dir)
	if err != nil {
		return err
	}
	for _, path := range all {
		content, err := os.ReadFile(path)
		if err != nil {
			return err
		}

		// Find the nth occurrence, or count down the occurrences in this file.
		data, offset := bytes.Clone(content), 0
		for ; n > 0; n-- {
			next := bytes.Index(data[offset:], []byte(text))
			if next < 0 {
				break
			}
			offset += next + 1
		}

		if n > 0 {
			continue
		}

		saved, err := json.Marshal(savedFile{path, content})
		if err != nil {
			return err
		}
		data[offset] ^= 1
		return errors.Join(os.WriteFile(savePath, saved, 0o600), os.WriteFile(path, data, 0o600))
	}
	return fmt.Errorf("%q is not in %v", text, all)
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
	if err := os.Remove(filepath.Join(filepath.Dir(saved.Path), "index.db")); !errors.Is(err, os.ErrNotExist) {
		return err
	}
	return nil
}

// savedFile is an original file and its path.
type savedFile struct {
	Path    string
	Content []byte
}
