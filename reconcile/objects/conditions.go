package objects

import (
	"errors"
	"fmt"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// SetCondition puts a condition into a list, and replaces the one of that type if there is one:
//
//	err := objects.SetCondition(&gadget.Status.Conditions, gadget.Generation, metav1.Condition{
//		Type: "Ready", Status: metav1.ConditionFalse, Reason: "Starting", Message: "2 of 3 pods are ready",
//	})
//
// generation is that of the object that the condition describes, as it was seen. It becomes ObservedGeneration, which
// tells readers whether the condition is about the spec that they see. LastTransitionTime changes only when Status
// does, or if there was none: to now, or to that of c if c has one. So a condition that is set again does not change,
// and needs no write.
//
// The list is replaced, not changed: a cached object may share it, if the status was copied from it by assignment. A
// condition that the server would refuse, such as one without a Reason, is an error, and the list stays as it was.
func SetCondition(conditions *[]metav1.Condition, generation int64, c metav1.Condition) error {
	if conditions == nil {
		return errors.New("SetCondition: the pointer to the conditions is nil")
	}
	old, exists := FindCondition(*conditions, c.Type)
	c.ObservedGeneration = generation
	switch {
	case exists && old.Status == c.Status && !old.LastTransitionTime.IsZero():
		c.LastTransitionTime = old.LastTransitionTime
	case c.LastTransitionTime.IsZero():
		c.LastTransitionTime = metav1.Now()
	}
	if err := validation.ValidateCondition(c, field.NewPath("condition")).ToAggregate(); err != nil {
		return fmt.Errorf("SetCondition %q: %w", c.Type, err)
	}
	switch {
	case !exists:
		*conditions = append(slices.Clip(*conditions), c)
	case old != c:
		list := slices.Clone(*conditions)
		list[index(list, c.Type)] = c
		*conditions = list
	}
	return nil
}

// RemoveCondition removes the condition of that type. Like SetCondition, it replaces the list.
func RemoveCondition(conditions *[]metav1.Condition, conditionType string) {
	if i := index(*conditions, conditionType); i >= 0 {
		*conditions = slices.Delete(slices.Clone(*conditions), i, i+1)
	}
}

// FindCondition returns the condition of that type, and whether there is one.
func FindCondition(conditions []metav1.Condition, conditionType string) (metav1.Condition, bool) {
	if i := index(conditions, conditionType); i >= 0 {
		return conditions[i], true
	}
	return metav1.Condition{}, false
}

// ConditionTrue reports whether the condition of that type is True for the given generation of the object, or a later
// one. A condition that is True for an earlier generation says nothing about the current spec.
func ConditionTrue(conditions []metav1.Condition, conditionType string, generation int64) bool {
	c, _ := FindCondition(conditions, conditionType)
	return c.Status == metav1.ConditionTrue && c.ObservedGeneration >= generation
}

func index(conditions []metav1.Condition, conditionType string) int {
	return slices.IndexFunc(conditions, func(c metav1.Condition) bool { return c.Type == conditionType })
}
