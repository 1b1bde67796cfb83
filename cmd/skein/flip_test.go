package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
)

// flipBit flips a bit of a text where it stands for the nth time in a file of messages below a
// directory. The file as it was is kept in another.
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
		data, at := bytes.Clone(content), 0
		for ; n > 0; n-- {
			next := bytes.Index(data[at:], []byte(text))
			if next < 0 {
				break
			}
			at += next + 1
		}
		if n > 0 {
			continue
		}
		saved, err := json.Marshal(savedFile{path, content})
		if err != nil {
			return err
		}
		data[at] ^= 1
		return errors.Join(os.WriteFile(savePath, saved, 0o600), os.WriteFile(path, data, 0o600))
	}
	return fmt.Errorf("%q is not in %v", text, all)
}

// blockFiles finds the files of messages of a log below a directory.
func blockFiles(dir string) ([]string, error) {
	return filepath.Glob(filepath.Join(dir, "jetstream", "*", "streams", "SKEIN", "msgs", "*.blk"))
}

// restoreFlipped brings a file back, as the runbook tells.
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

type savedFile struct {
	Path    string
	Content []byte
}
