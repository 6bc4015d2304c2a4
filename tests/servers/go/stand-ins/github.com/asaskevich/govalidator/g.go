package govalidator

import "net/mail"

func IsEmail(s string) bool { a, err := mail.ParseAddress(s); return err == nil && a.Address == s }
