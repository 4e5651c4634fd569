package weigh

import "testing"

func TestSizeClasses(t *testing.T) { t.Log(sizeClasses()) }
