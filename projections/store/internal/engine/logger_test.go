package engine

import "fmt"

// silentLogger is a logger of Pebble that logs nothing.
type silentLogger struct{}

func (silentLogger) Infof(string, ...any)              {}
func (silentLogger) Errorf(string, ...any)             {}
func (silentLogger) Fatalf(format string, args ...any) { panic(fmt.Sprintf(format, args...)) }
