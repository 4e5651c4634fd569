package reconcile

import (
	"fmt"
	"path"
	"reflect"
	"runtime"
	"strings"
)

// library has the packages of this library that stand above or below the user's code in a stack.
var library = []string{"reconcile.", "reconcile/objects.", "informer.", "workqueue.", "leaderelection.", "internal/"}

// whereInUserCode returns the function, file and line of the first frame of a stack that is the user's: not Go's, not
// Kubernetes' and not this library's. If there is none it returns "".
func whereInUserCode(stack string) string {
	lines := strings.Split(stack, "\n")
	for i := 1; i+1 < len(lines); i += 2 {
		function, file := lines[i], strings.TrimSpace(lines[i+1])
		if cut := strings.LastIndexByte(function, '('); cut > 0 {
			function = function[:cut]
		}
		file, _, _ = strings.Cut(file, " ")
		if ours(function, file) || strings.HasPrefix(function, "k8s.io/") || ofGo(function, file) {
			continue
		}
		return path.Base(function) + " " + path.Base(file)
	}
	return ""
}

func ours(function, file string) bool {
	rest, ok := strings.CutPrefix(function, "github.com/thermostat-go/thermostat/")
	file, _, _ = strings.Cut(file, ":")
	if !ok || strings.HasSuffix(file, "_test.go") {
		return false
	}
	for _, p := range library {
		if strings.HasPrefix(rest, p) {
			return true
		}
	}
	return false
}

// ofGo reports whether a function is one of Go's standard library. Its files are where that of fmt.Sprint is; in a
// binary without paths only the names of packages tell.
func ofGo(function, file string) bool {
	sprint := runtime.FuncForPC(reflect.ValueOf(fmt.Sprint).Pointer())
	known, _ := sprint.FileLine(sprint.Entry())
	if root := strings.TrimSuffix(known, "fmt/print.go"); root != "" {
		return strings.HasPrefix(file, root)
	}
	first, _, _ := strings.Cut(function, "/")
	name, _, dotted := strings.Cut(first, ".")
	return name != "main" && !(dotted && strings.Contains(function, "/"))
}
