package main

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestOneWayOut: only main, of each program, has the streams of the process, and gives commands those that do not
// control the terminal.
func TestOneWayOut(t *testing.T) {
	files := 0
	look := func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
			return err
		}
		files++
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		for _, stream := range []string{"os.Stdout", "os.Stderr", "fmt.Print"} {
			n := strings.Count(string(text), stream)
			if n > 0 && (entry.Name() != "main.go" || n > 1 || stream == "fmt.Print") {
				t.Errorf("%s writes %d times to %s", path, n, stream)
			}
		}
		return nil
	}
	err := errors.Join(filepath.WalkDir(".", look), filepath.WalkDir(filepath.Join("..", forecasts), look))
	if err != nil || files < 40 {
		t.Errorf("%d files were read (%v)", files, err)
	}
}
