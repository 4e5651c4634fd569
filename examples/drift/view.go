package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"

	"github.com/thermostat-go/thermostat/informer"
	"github.com/thermostat-go/thermostat/reconcile"
	"github.com/thermostat-go/thermostat/reconcile/objects"
)

// view prints the differences of one object.
type view struct {
	target
	manager string
	out     io.Writer
	last    string // what was printed last
}

// controller returns one that shows the view whenever the object has changed.
func (v *view) controller() (*reconcile.Controller, error) {
	cache, err := informer.New(v.client, informer.Options[*unstructured.Unstructured]{
		FieldSelector: fields.OneTermEqualSelector("metadata.name", v.desired.GetName()),
	})
	if err != nil {
		return nil, err
	}
	show := reconcile.Func(func(ctx context.Context, _ informer.Key) (reconcile.Result, error) {
		_, err := v.show(ctx)
		return reconcile.Result{}, err
	})
	c, err := reconcile.NewController("drift-of-"+v.desired.GetName(), show, reconcile.Options{Workers: 1})
	if err != nil {
		return nil, err
	}
	reconcile.For(c, cache)
	return c, nil
}

// show prints the differences, unless they are those that it printed last, and reports whether there are some.
func (v *view) show(ctx context.Context) (drifted bool, err error) {
	found, err := objects.Drift(ctx, v.client, v.client.Apply, informer.ApplyUnstructured(v.desired),
		metav1.ApplyOptions{FieldManager: v.manager})
	if err != nil {
		return false, err
	}
	var text strings.Builder
	fmt.Fprintln(&text, v.target)
	if len(found) == 0 {
		fmt.Fprintln(&text, "  no differences")
	}
	table := tabwriter.NewWriter(&text, 0, 0, 3, ' ', 0)
	for _, d := range found {
		fmt.Fprintf(table, "  %s\tdesired %s\tis %s\t%s\n", d.Field, v.print(d, d.Desired), v.print(d, d.Is), d.Cause())
	}
	if err := table.Flush(); err != nil {
		return false, err
	}
	if text.String() != v.last {
		v.last = text.String()
		_, err = io.WriteString(v.out, v.last)
	}
	return len(found) > 0, err
}

// print returns a value as JSON, and of a Secret only that there is one.
func (v *view) print(d objects.Difference, value any) string {
	switch {
	case value == nil:
		return "nothing"
	case v.desired.GetKind() == "Secret" && !strings.HasPrefix(d.Field, ".metadata."):
		return "(hidden)"
	}
	text, err := json.Marshal(value)
	if err != nil {
		return err.Error()
	}
	return string(text)
}
