package flags

import (
	"io"
	"log/slog"
)

// LogFlags say how a process writes its log.
type LogFlags struct {
	LogFormat string `help:"How the process writes its own log: ${enum}." enum:"text,json" default:"text"`
	LogLevel  string `help:"What it writes at least: ${enum}." enum:"debug,info,warn,error" default:"info"`
}

// Logger writes to w as the flags say.
func (f *LogFlags) Logger(w io.Writer) *slog.Logger {
	var level slog.Level
	_ = level.UnmarshalText([]byte(f.LogLevel)) // the parser knows the levels
	o := &slog.HandlerOptions{Level: level}
	if f.LogFormat == "json" {
		return slog.New(slog.NewJSONHandler(w, o))
	}
	return slog.New(slog.NewTextHandler(w, o))
}
