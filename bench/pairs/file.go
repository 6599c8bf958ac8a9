package pairs

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
)

// WriteFile writes v to path as indented JSON, through a temporary file in the
// same directory and a rename, so that a reader never sees half a result and
// an interrupted run leaves the previous one. It makes the directory.
func WriteFile(path string, v any) error {
	data, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		return fmt.Errorf("encoding %s: %w", path, err)
	}
	dir := filepath.Dir(path)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("making the directory of %s: %w", path, err)
	}
	f, err := os.CreateTemp(dir, ".bench-*")
	if err != nil {
		return fmt.Errorf("writing %s: %w", path, err)
	}
	defer os.Remove(f.Name()) // fails once renamed, which is the good case
	_, err = f.Write(append(data, '\n'))
	if cerr := f.Close(); err == nil {
		err = cerr
	}
	if err == nil {
		err = os.Chmod(f.Name(), 0o644)
	}
	if err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		return fmt.Errorf("writing %s: %w", path, err)
	}
	return nil
}
