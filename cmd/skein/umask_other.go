//go:build !unix

package main

// keepPrivate does nothing: on this system files inherit the access of their directory.
func keepPrivate() {}
