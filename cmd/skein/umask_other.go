//go:build !unix

package main

// keepPrivate is the matter of the directory here: what is made in it has the access that it hands down.
func keepPrivate() {}
