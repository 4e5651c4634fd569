package main

import (
	"errors"
	"fmt"

	"k8s.io/apimachinery/pkg/labels"

	"github.com/thermostat-go/thermostat/informer"
)

// Do the pods of the target belong to it alone?
//
// If two HPAs count the same pods, each sees load that the other one answers. So neither decides.

// findPods finds the pods of the target, or says why it cannot.
func (r *autoscaler) findPods(s *situation) (selector labels.Selector, trouble *problem) {
	text, key := s.scale.Status.Selector, informer.KeyOf(s.hpa)
	if text == "" {
		return nil, &problem{reason: "InvalidSelector", event: "SelectorRequired",
			err:       errors.New("selector is required"),
			condition: "the HPA target's scale is missing a selector"}
	}
	selector, err := labels.Parse(text)
	if err != nil {
		return nil, &problem{reason: "InvalidSelector", event: "InvalidSelector",
			err: fmt.Errorf("couldn't convert selector into a corresponding internal selector object: %w", err)}
	}
	s.pods = r.podsOf(key.Namespace, selector)
	if other, found := r.notebook.rival(key, selector, s.pods); found {
		return nil, &problem{reason: "AmbiguousSelector", event: "AmbiguousSelector",
			err: fmt.Errorf("pods by selector %s are controlled by more than one HPA (e.g. %s and %s)", text, key,
				other)}
	}
	return selector, nil
}

// rival notes the selector that the target of an HPA has, and returns another HPA whose target has one of the same
// pods.
func (b *notebook) rival(key informer.Key, selector labels.Selector, pods []podFacts) (other informer.Key, found bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	in := b.selectors[key.Namespace]
	if in == nil {
		in = map[informer.Key]labels.Selector{}
		b.selectors[key.Namespace] = in
	}
	in[key] = selector
	seen := map[string]bool{} // most pods of a target have equal labels
	for i := range pods {
		if seen[pods[i].labelText] {
			continue
		}
		seen[pods[i].labelText] = true
		for k, s := range in {
			if k != key && s.Matches(pods[i].labels) && (!found || k.String() < other.String()) {
				other, found = k, true // the same one each time
			}
		}
	}
	return other, found
}
