package kube

import (
	"cmp"
	"fmt"
	"strings"
)

// CompareVersions returns -1 if resourceVersion a is earlier than b, both of one resource, 0 if they are the same, and
// 1 if a is later. Versions have an order only if both are whole numbers above 0, of any length and without leading
// zeros; else it returns an error.
//
// It is CompareResourceVersion of apimachinery 0.35, which the oldest client-go that we build with does not have.
func CompareVersions(a, b string) (int, error) {
	for _, version := range [...]string{a, b} {
		if strings.Trim(version, "0123456789") != "" || strings.HasPrefix(version, "0") || version == "" {
			return 0, fmt.Errorf("resourceVersion %q is no number", version)
		}
	}
	if len(a) != len(b) {
		return cmp.Compare(len(a), len(b)), nil
	}
	return strings.Compare(a, b), nil
}

// Older reports whether resourceVersion a is known to be earlier than b, both of one resource. Versions that are no
// numbers, as some aggregated API servers give, have no order.
func Older(a, b string) bool {
	order, err := CompareVersions(a, b)
	return err == nil && order < 0
}

// AtLeast reports whether resourceVersion a is known to be b or later. Any version is at least itself.
func AtLeast(a, b string) bool { return a == b || Older(b, a) }

// Ordered reports whether resourceVersions a and b are the same, or one is known to be earlier.
func Ordered(a, b string) bool { return AtLeast(a, b) || Older(a, b) }
