package gateway

import "github.com/skein-feed/skein/gateway/pagetoken"

// Formats returns the versions of what clients keep, by name.
func Formats() map[string]int { return map[string]int{"page token": pagetoken.Version} }
