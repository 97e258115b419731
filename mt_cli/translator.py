"""Another name of `mt_cli.Translator`, for programs that were written before it had this one."""

from mt_cli.translation.translator import Translator as Translator
