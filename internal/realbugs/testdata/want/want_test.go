package check

import (
	"fmt"

	"github.com/thermostat-go/thermostat/reconcile/reconciletest"
)

// want returns an error unless something is as it should be.
func want(what string, is, should any) error {
	if fmt.Sprint(is) == fmt.Sprint(should) {
		return nil
	}
	return fmt.Errorf("%s: %v, want %v", what, is, should)
}

// gone returns an error if there is an object.
func gone[T reconciletest.Object](s *reconciletest.Server, resource, namespace, name string) error {
	if _, there := reconciletest.Get[T](s, resource, namespace, name); there {
		return fmt.Errorf("%s %s/%s is still there", resource, namespace, name)
	}
	return nil
}

// there returns an object, or an error if there is none.
func there[T reconciletest.Object](s *reconciletest.Server, resource, namespace, name string) (T, error) {
	o, ok := reconciletest.Get[T](s, resource, namespace, name)
	if !ok {
		return o, fmt.Errorf("%s %s/%s is not there", resource, namespace, name)
	}
	return o, nil
}
