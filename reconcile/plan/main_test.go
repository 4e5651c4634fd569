package plan_test

import (
	"os"
	"path/filepath"
	"testing"
)

// TestMain removes the audit log that the tests share.
func TestMain(m *testing.M) {
	code := m.Run()
	if started.c != nil {
		os.RemoveAll(filepath.Dir(started.c.log))
	}
	os.Exit(code)
}
